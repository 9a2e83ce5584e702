# tests/fuzz/programs.py
"""Seed -> the source of a random function of three tensors, an int n and a float k, and what to
call it with.

The function grows statement by statement. Each new statement is run at once, in float32 and float64, and kept only
when it raises nothing and both agree: otherwise rounding, not the compiler, would decide what comes out. What is run
and what is printed on failure is the same text.
"""

from __future__ import annotations

import linecache
import math
import random

import torch
import torch.nn.functional as F

import torchbolt

SIZES = ((6, 8), (8, 6), (5,), (3, 4, 5), (1, 8), (4, 16), (16,), (2, 3, 4, 2))
DTYPES = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.float64)
EMPTY = ((0, 6), (5, 0), (0,), (3, 0, 4), (0, 0))

UNARY = (
    "{x}.relu()", "{x}.sigmoid()", "{x}.tanh()", "{x}.exp().clamp(max=20)", "{x}.abs().add(0.5).log()", "-{x}",
    "F.gelu({x})", "F.silu({x})", "{x}.abs().sqrt()", "{x} * 2 + 1", "1 - {x}", "{x} / 3", "{x} ** 2",
    "{x}.clamp(-1, 1)", "{x}.clone()", "{x}.detach()", "torch.sin({x})", "F.softmax({x}, -1)",
    "F.layer_norm({x}, {x}.shape[-1:])", "torch.where({x} > 0.3, {x}, {c})", "{x}.masked_fill({x} < 0, {c})",
    "{x}.cumsum(-1)", "{x}.sort(-1).values", "torch.zeros_like({x}) + {c}", "{x}.double().mul({c}).to({x}.dtype)",
    "{x}.round() * {c}", "torch.nan_to_num({x})", "{x}.new_full({x}.shape, {c})", "{x}.erf()", "F.softplus({x})", "F.mish({x})",
    "F.elu({x})", "F.hardswish({x})", "F.leaky_relu({x}, {c})", "F.log_softmax({x}, 0)", "F.normalize({x}, dim=-1)", "{x}.sign() * {x}.floor()",
    "{x}.frac()", "{x}.cummax(0).values", "{x}.cumprod(-1)", "{x}.roll(1, -1)", "{x}.logcumsumexp(0)", "F.gelu({x}, approximate='tanh')",
    "{x}.to(torch.int64) % 3", "{x}.bool()", "{x}.long() & 3", "{x}.float() // 2", "{x}.fmod({c})", "{x}.remainder({c})", "F.rms_norm({x}, {x}.shape[-1:])",
    "{x}.reciprocal().clamp(-5, 5)", "F.threshold({x}, 0.1, {c})", "F.hardtanh({x})", "{x}.square().rsqrt().clamp(max=9)", "torch.logit({x}.sigmoid())",
)  # fmt: skip
VIEWS = (
    "{x}.t()", "{x}.transpose(0, -1)", "{x}.reshape(-1)", "{x}.view(-1)", "{x}.flatten()", "{x}.unsqueeze(0)",
    "{x}.squeeze()", "{x}[0]", "{x}[-1]", "{x}[1:]", "{x}[::2]", "{x}[..., 1:]", "{x}[..., :2]", "{x}.flip(0)",
    "{x}.expand(2, *{x}.shape)", "{x}.narrow(-1, 1, 2)", "{x}.chunk(2, -1)[0]", "{x}.split(2, -1)[1]",
    "{x}.unbind(0)[0]", "{x}.contiguous()", "{x}.permute(*reversed(range({x}.dim())))", "{x}[:, None]",
    "{x}.diagonal()", "{x}.as_strided((2, 2), (1, 1), 0)", "{x}.view_as({x})", "{x}.mT", "{x}.unfold(0, 2, 1)", "{x}.movedim(0, -1)", "{x}.tile(2)",
    "{x}.repeat_interleave(2, 0)", "{x}.squeeze(-1)", "{x}.unflatten(-1, (-1, 2))", "{x}.tensor_split(2)[0]", "{x}.hsplit(2)[1]",
    "torch.broadcast_to({x}, (2, *{x}.shape))", "torch.atleast_2d({x})", "{x}.rot90()", "{x}[None]", "{x}[..., None, :]", "{x}[-2:]", "{x}.T",
    "{x}.view(torch.int32).view(torch.float32)", "{x}.select(-1, 0)", "{x}[{x}.shape[0] // 2 :]", "{x}.fliplr()",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / ({y}.abs() + 1)", "torch.maximum({x}, {y})", "torch.cat([{x}, {y}], -1)",
    "torch.stack([{x}, {y}])", "{x} @ {y}", "{x} @ {y}.mT", "torch.where({y} > 0, {x}, {y})", "F.linear({x}, {y})",
    "torch.addcmul({x}, {x}, {y})", "{x}.lerp({y}, 0.25)", "{x}.expand_as({y})", "{x}.reshape({y}.shape)",
    "torch.outer({x}.reshape(-1)[:3], {y}.reshape(-1)[:4])", "{x}.masked_fill({y} > 0, {c})",
    "torch.logaddexp({x}, {y})", "torch.atan2({x}, {y})", "torch.hypot({x}, {y})", "F.mse_loss({x}, {y})", "F.smooth_l1_loss({x}, {y})", "{x} > {y}",
    "torch.einsum('...i,...i->...', {x}, {y})", "F.cosine_similarity({x}, {y}.roll(1, -1), dim=-1)", "torch.tensordot({x}, {y}, 1)", "torch.cdist({x}, {x})", "{x}.dot({y})",
    "torch.column_stack([{x}, {y}])", "torch.vstack([{x}, {y}])", "torch.baddbmm({x}[None], {x}[None], {y}[None])", "torch.addmm({y}.sum(0), {x}, {y})", "torch.isclose({x}, {y})", "{x}.copysign({y})",
    "F.scaled_dot_product_attention({x}, {y}, {y})", "F.binary_cross_entropy_with_logits({x}, {y}.sigmoid())", "torch.fmin({x}, {y})", "{x}.xlogy({y}.abs() + 0.5)",
    "F.conv1d({x}.reshape(1, 1, -1), {y}.reshape(1, 1, -1)[..., :3])", "F.group_norm({x}.reshape(1, 2, -1), 2)", "torch.linalg.vector_norm({x} - {y}, dim=-1)", "F.prelu({x}, {y}.reshape(-1)[:1])",
)  # fmt: skip
REDUCTIONS = (
    "{x}.sum()", "{x}.sum(-1)", "{x}.mean(0)", "{x}.mean(-1, keepdim=True)", "{x}.amax(-1)", "{x}.max(0).values",
    "{x}.var(-1)", "{x}.argmax(-1)", "({x} > 0).any(-1)", "({x} > 0).sum()", "{x}.norm()", "{x}.logsumexp(0)",
    "{x}.min()", "{x}.prod(-1)", "{x}.all()", "{x}.std(0)", "{x}.aminmax(dim=-1)[1]", "{x}.median()", "{x}.nansum(-1)", "{x}.count_nonzero(0)", "{x}.sum((0, -1))",
    "torch.var_mean({x}, 0)[0]", "{x}.min(-1).indices", "{x}.mean()", "{x}.square().sum(-1, keepdim=True).sqrt()", "{x}.sum(0, keepdim=True)", "{x}.amax((0, 1))", "torch.trace({x})",
    "F.avg_pool1d({x}.reshape(1, 1, -1), 2)", "F.max_pool1d({x}.reshape(1, 1, -1), 3, 1)", "F.adaptive_avg_pool1d({x}.reshape(1, 1, -1), 3)", "F.cross_entropy({x}, {x}.argmax(-1))",
)  # fmt: skip
INDICES = (
    "{x}.argsort(dim=-1, stable=True)", "torch.arange({x}.shape[-1])", "{x}.gather(-1, {x}.argsort(dim=-1, stable=True))",
    "{x}[torch.arange(2)]", "{x}[..., torch.arange({x}.shape[-1]).flip(0)]", "{x}.index_select(0, torch.arange(2))",
    "torch.tril({x})", "F.pad({x}, (1, 2), value={c})", "torch.eye({x}.shape[-1])", "torch.tensor([{c}, 2.0]).to({x}.dtype)",
    "{x}[{x} > 0.2]", "{x} * torch.tensor({c})", "{x}.topk(2, -1).values", "F.one_hot({x}.argmax(-1), {x}.shape[-1])",
    "{x} * {x}[{x} > 0.1].numel()", "torch.arange({x}[{x} > 0.1].shape[0]) + 1", "{x}[torch.where({x} > 0)[0]].sum(0)",
    "{x}.nonzero()[:, 0]", "torch.where({x} > 0.2)[0]", "{x}.masked_select({x} > 0.2)", "torch.unique({x}.round())", "torch.bincount({x}.flatten().abs().long())",
    "{x}.scatter_add(0, torch.zeros_like({x}, dtype=torch.long), {x})", "{x}.take_along_dim({x}.argmax(-1, keepdim=True), -1)", "torch.searchsorted(torch.linspace(-1, 1, 5).to({x}.dtype), {x})",
    "{x}.index_add(0, torch.arange({x}.shape[0]), {x})", "{x}.index_copy(0, torch.tensor([0]), {x}[-1:])", "{x}.scatter(-1, {x}.argmax(-1, keepdim=True), {c})", "F.embedding({x}.long().abs() % 5, torch.eye(5).to({x}.dtype))",
    "F.interpolate({x}.reshape(1, 1, -1), scale_factor=2)", "{x}.triu(1)", "torch.diag({x})", "torch.diag_embed({x})", "{x}.diff(dim=-1)", "{x}[[0, -1]]", "{x}[..., [0]]", "{x}[{x}.argmax() % {x}.shape[0]]",
    "torch.meshgrid({x}.reshape(-1)[:2], {x}.reshape(-1)[:3], indexing='ij')[1]", "{x}.put(torch.tensor([0]), torch.tensor([{c}]).to({x}.dtype))", "{x}.kthvalue(1, -1).values", "{x}[({x} > 0).any(-1)]", "torch.linspace(0, {c}, {x}.shape[0])",
)  # fmt: skip
IN_PLACE = (
    "{x}.add_({c})", "{x}.mul_({y})", "{x}.sub_({y})", "{x}.relu_()", "{x} += {y}", "{x} *= {c}", "{x}[0] = {c}",
    "{x}[1:].mul_({c})", "{x}[..., 0].add_({c})", "{x}.t().add_({y})", "{x}.view(-1)[1:3].fill_({c})", "{x}.copy_({y})",
    "{x}.zero_()", "{x}.fill_({c})", "{x}[..., ::2] = {y}[..., ::2]", "{x}.transpose(0, -1)[0].mul_({c})",
    "{x}.clamp_(-1, 1)", "{x}[{x} > 0] = {c}", "{x}.masked_fill_({x} < 0, {c})", "{x}.flatten()[0] += {c}",
    "{x}.unsqueeze(0).neg_()", "{x}.narrow(0, 0, 1).exp_().clamp_(max=9)", "{x}[0].copy_({x}[-1])", "torch.add({x}, {c}, out={x})",
    "{x}[1:] = {x}[:-1].clone()", "{x}.index_fill_(0, torch.arange(1), {c})", "{x}.t_()", "{x}.unsqueeze_(0)",
    "{x}.detach().add_({c})", "{x}.data.mul_({c})", "{x}[{x} > 0] *= {c}", "{x}[..., -1:].zero_()", "{x}.scatter_(0, torch.zeros_like({x}, dtype=torch.long), {c})", "{x}.index_copy_(0, torch.tensor([0]), {x}[-1:].clone())",
    "{x}[[0]] = {c}", "{x}.diagonal().add_({c})", "{x}.flip(0).add_({c})", "{x}.addcmul_({x}, {x}, value=0.1)", "{x}.lerp_({y}, 0.5)", "{x}.masked_scatter_({x} > 0, {x} * 0.5)", "{x}.sigmoid_().sub_(0.5)", "{x}.select(0, -1).copy_({x}[0])",
    "{x}.transpose_(0, -1)", "{x}.squeeze_(0)", "torch.mul({x}, {y}, out={x})", "torch.cat([{x}[:1], {x}[1:]], out={x}.new_empty(0))", "{x}.index_put_((torch.arange(1),), {x}[-1].clone(), accumulate=True)", "{x}.cumsum_(0)", "{x}[1:, ..., :1].fill_({c})", "torch._foreach_add_([{x}], {c})",
)  # fmt: skip
BREAKS = (
    "{n} = {x} * {y}.mean().item()",
    "{n} = {x} + float({y}.sum() > 0.37)",
    "if {y}.sum() > 0.37:\n        {n} = {x} + 1\n    else:\n        {n} = {x} * 2",
    "if {y}.sum() > 0.37:\n        {x}.add_(1)\n    {n} = {x} * {c}",
    "{n} = {x}[int({y}.argmax().item()) % {x}.shape[0]]",
    "{n} = {x} if bool(({y} > 0).any()) else -{x}",
    "{n} = {x} * len({y}.reshape(-1)[:2].tolist())",
    "for _ in range(int({y}.abs().sum().item() * 0.7071) % 3):\n        {x} = {x} * {c}\n    {n} = {x} + 1",
    "try:\n        {n} = {x}[1000]\n    except IndexError:\n        {n} = {x} * {c}",
)
RAISES = (  # for some of the values; what nobody uses is not run, so what raises is kept
    "try:\n        kept.append(torch.linalg.cholesky(({y}.sum() - 0.37).reshape(1, 1)).sign())\n        {n} = {x} * kept[-1].sum()\n    except RuntimeError:\n        {n} = {x} * {c}",
    "try:\n        {x}.add_({c})\n        kept.append(torch.linalg.inv(({y}.sum() > 0.37).to({x}.dtype).reshape(1, 1)).sign())\n        {n} = {x} * kept[-1].sum()\n    except RuntimeError as error:\n        {n} = {x} * 2 + len(type(error).__name__)\n    finally:\n        {x}.mul_(0.5)",
    "try:\n        kept.append(torch.tensor([0.5, -1.0, 2.0]).index_select(0, ({y}.argmax() % 5).reshape(1)))\n        {n} = {x} * kept[-1].sum()\n    except (IndexError, RuntimeError):\n        {n} = {x} + {c}",
    "try:\n        {x}[0] = {c}\n        {n} = {x}[{y}.reshape(-1).argmax()]\n        kept.append({n} * 1)\n    except IndexError:\n        {n} = {x}[-1]",
    "kept.append(torch.linalg.cholesky(({y}.sum() + 0.8).reshape(1, 1)).sign())\n    {n} = {x} * kept[-1].sum()",
    "{x}.mul_({c})\n    kept.append(torch.linalg.inv(({y}.sum() > -0.8).to({x}.dtype).reshape(1, 1)).sign())\n    {n} = {x} * kept[-1].sum()",
    "noise = torch.bernoulli(({y}.sum() * 0.1 + 0.7).clamp(min=0.5))\n    kept.append(noise)\n    {n} = {x} + noise * 0",
    "{n} = F.embedding({x}.detach().abs().long().reshape(-1)[:2] + (({y}.sum() > 0.37).long()), torch.eye(4).to({x}.dtype))\n    kept.append({n} * 1)",
    "with torch.no_grad():\n        {n} = {x} * 2\n        {x}.zero_()\n        kept.append(torch.linalg.cholesky(({y}.sum() + 0.8).reshape(1, 1)).sign())\n        {n} = {n} + kept[-1].sum()",
)
PYTHON = (
    "pair = ({x}, {y})\n    {n} = pair[0] * 2",
    "table = {{'a': {x}, 'b': [{y}, {x}]}}\n    table['b'].append({x} + 1)\n    {n} = table['b'][-1]",
    "{n} = sum([{x} * i for i in range(3)])",
    "for i in range(3):\n        {x} = {x} * {c} + i\n    {n} = {x}",
    "if {x}.dim() > 1:\n        {n} = {x}.sum(-1)\n    else:\n        {n} = {x} * 2",
    "def inner(t, k={c}):\n        return t * k + {y}.sum()\n    {n} = inner({x})",
    "{n} = (lambda t: t + {x}.shape[0])({x})",
    "first, *rest = {x}.unbind(0)\n    {n} = first + len(rest)",
    "state = [{x}]\n    state[0].mul_({c})\n    {n} = state[0] + {x}",
    "alias = {x}\n    alias += 1\n    {n} = {x} * {c}",
    "window = {x}[1:]\n    {x}.add_({c})\n    {n} = window * 2",
    "window = {x}.view(-1)\n    window.mul_({c})\n    {n} = {x} + window.sum()",
    "{n} = torch.cat([p * (i + 1) for i, p in enumerate({x}.chunk(2, 0))], 0)",
    "count = 0\n    while count < 3:\n        count += 1\n        if count == 2:\n            continue\n        {x} = {x} + count\n    {n} = {x} * count",
    "def parts(t):\n        for i in range(2):\n            yield t * i\n    {n} = sum(parts({x})) + next(parts({y})).sum()",
    "total = 0\n    def grow(k):\n        nonlocal total\n        total = total + k * {x}\n        return total\n    grow(1)\n    {n} = grow({c})",
    "class Box:\n        scale = {c}\n        def __init__(self, t):\n            self.t = t\n        def __mul__(self, other):\n            return self.t * other + self.scale\n    {n} = Box({x}) * 2",
    "try:\n        {n} = {x} * 2\n        if {y}.dim() > 2:\n            raise ValueError(3)\n    except ValueError as error:\n        {n} = {x} * error.args[0]\n    finally:\n        {n} = {n} + 1",
    "with torch.no_grad():\n        {n} = {x} * {c}\n        {n} += 1",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n        {n} = {x} @ {y}.transpose(-1, -2)\n        {n} = {n}.float() + 1",
    "with torch.autocast('cpu', dtype=torch.bfloat16, enabled=n > 2):\n        {n} = F.linear({x}, {y}.reshape(-1, {x}.shape[-1])).softmax(-1) + {c}",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n        {n} = {x} @ {y}.transpose(-1, -2)\n        torchbolt.graph_break()\n        {n} = {n}.float() + ({y} @ {y}.transpose(-1, -2)).sum()",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n        {n} = {x} @ {y}.transpose(-1, -2)\n        with torch.autocast('cpu', enabled=False):\n            {n} = {n}.float() + ({x} @ {y}.transpose(-1, -2)).sum()\n            torchbolt.graph_break()\n            {n} = {n} + ({y} @ {y}.transpose(-1, -2)).sum()",
    "with torch.no_grad():\n        {n} = {x} * {c}\n        torchbolt.graph_break()\n        {n} = {n} + {y}.sum()",
    "with torch.inference_mode():\n        {n} = {x} * {c}\n        torchbolt.graph_break()\n        {n} = {n} + 1\n    {n} = {n}.clone()",
    "with torch.device('cpu'):\n        {n} = {x} * torch.ones(())\n        torchbolt.graph_break()\n        {n} = {n} + torch.arange(2).sum()",
    "{n} = {x}.bfloat16()\n    {n} = ({n} * {c} + 1).to({x}.dtype)",
    "{n} = [{x} * k for k in sorted({{3, 1, 2}}, key=lambda k: -k)][0]",
    "def scaled(*args, by={c}, **more):\n        return args[0] * by + len(args) + len(more)\n    {n} = scaled({x}, {y}, by=2, z=1)",
    "match {x}.dim():\n        case 1:\n            {n} = {x} + 1\n        case 2 | 3:\n            {n} = {x} * 2\n        case _:\n            {n} = -{x}",
    "queue = [{x}, {y}]\n    queue.insert(0, {x} * {c})\n    queue.pop()\n    {n} = queue[0] + queue[-1]",
    "cache = {{}}\n    for key in 'aba':\n        cache.setdefault(key, []).append({x} * len(cache))\n    {n} = sum(cache['a']) + len(cache['b'])",
    "{n} = (half := {x} * 0.5) + half",
    "a, (b, c0) = {x}, ({y}, {c})\n    {n} = a * c0",
    "noise = random.random()\n    {n} = {x} * noise - noise / 3",
    "noise = random.randint(-2, 3)\n    {n} = {x} * noise + noise / 3",
    "{n} = {x} * random.choice([0.5, 1.5]) - random.gauss(0, 1)",
    "{n} = {x}.roll(random.randint(0, 3), -1)",
    "{n} = torch.where({x} > random.uniform(-1, 1), {x}, {c})",
    "{n} = {x} if random.random() > 0.5 else -{x}",
    "makers = [lambda t, k=k: t * k for k in (1, 2)]\n    {n} = makers[1]({x}) + makers[0]({x})",
)
NUMBERS = (
    "{x} * n", "{x} + k", "{x}[n:]", "{x}[: n + 1]", "{x}[..., n % {x}.shape[-1]]", "{x}.roll(n, 0)", "{x}.narrow(0, 0, n + 1)",
    "{x}.repeat(n + 1, *[1] * {x}.dim())", "torch.full_like({x}, k)", "{x}.clamp(max=k)", "torch.arange(n + 2)",
    "{x}.unsqueeze(0).expand(n + 1, *{x}.shape)", "{x} * torch.ones(n + 1).sum()", "{x} + k * {y}.reshape(-1)[: n + 2].sum()",
    "F.pad({x}, (n, 1), value=k)", "{x}.add({y}, alpha=k)", "{x}.chunk(n + 1, 0)[0]", "{x}.cumsum(n % {x}.dim())",
    "{x}.sum(n % {x}.dim())", "torch.tril({x}, n)", "torch.full((n + 1,), k)", "{x}.unflatten(0, (-1, n))", "{x} ** n",
    "{x}.reshape(-1)[n : n + 2].sum() + n // 2 + 7 % (n + 1)", "{x} * divmod(n, 2)[1] + round(k) + abs(-n) + min(k, 0.5)",
    "{x} + [3, 1, 4, 1, 5, 9][n]", "{x} * (n if n % 2 else -k)", "{x} * sum(range(n)) + max(n, k)", "{x}.masked_fill({x} > k, n)",
    "{x}[torch.arange(n + 1) % {x}.shape[0]]", "torch.stack([{x}] * (n + 1))", "sum([{x} * i for i in range(5)][:n], {x})",
)  # fmt: skip
NUMBER_STATEMENTS = (
    "for i in range(n):\n        {x} = {x} * {c} + i\n    {n} = {x} + 1",
    "parts = [{x}, {y}, {x} + 1][n % 3 :]\n    {n} = parts[0] * len(parts)",
    "if n > 2:\n        {n} = {x} * n\n    else:\n        {n} = {x} - k",
    "table = {{i: {x} + i for i in range(n + 1)}}\n    {n} = table[n] * len(table)",
    "n = n + 1\n    {n} = {x} * n",
    "k = k * 0.5 + n\n    {n} = {x} + k",
    "n = {x}.shape[0] - n\n    {n} = {x} * n",
    "where = slice(n % 2, None)\n    {n} = {x}[where] + len([1, 2, 3][where])",
    "text = f'{{n}}-{{k:.2f}}'\n    {n} = {x} * len(text)",
    "def step(t, by=n):\n        return t * by + k\n    {n} = step({x})",
    "class Scale:\n        def __init__(self, by):\n            self.by = by\n    {n} = {x} * Scale(n + k).by",
    "count = {{'n': n}}\n    count['n'] += 1\n    {n} = {x} * count['n']",
    "total = 0\n    while total < n:\n        total += 1\n        {x} = {x} + k\n    {n} = {x} * total",
    "m = {y}.mean().item() * k\n    {n} = {x} * m + n",
    "m = int({y}.argmax().item()) + n\n    {n} = {x} * m",
    "pair = (n, [k, n])\n    {n} = {x} * pair[1][0] + pair[0]",
    "half, odd = divmod(n, 2)\n    {n} = {x} * half if odd else {x} + half",
    "if {y}.sum() > 0.37:\n        n += 1\n    {n} = {x} * n",
    "items = list(range(6))\n    del items[:n]\n    items.append(n)\n    {n} = {x} * len(items) + items[0]",
    "n = max(n - 1, 0)\n    {n} = {x}[n:]",
)
DATA = (
    "m = int({x}.abs().max() + 0.0707)\n    {n} = {y}.reshape(-1)[: m + 1] * {c}",
    "m = int(({x} > 0.37).long().argmax())\n    {n} = {y}.reshape(-1)[m % {y}.numel()] + {x}",
    "m = ({x} > 0.37).sum().item()\n    {n} = torch.ones(m, 2).sum(0) + {x}.sum()",
    "top = {x}.abs().max().item() + 1\n    {n} = {y} / top - top",
    "assert {x}.isfinite().all()\n    {n} = {x} * 2",
    "if not ({x} > -1.0707).all():\n        raise ValueError('too small')\n    {n} = {x} + {y}",
    "m = max(int(({x} > 0.37).sum()) % 5, 2)\n    {n} = {y}.new_full((m, m + 1), {c}).sum(0)",
    "p, q = ({x}.reshape(-1)[:2] > 0.37).long().tolist()\n    {n} = torch.cat([{x}.reshape(-1), torch.full((p + q + 1,), {c})])",
    "m = ({x} > 0.37).sum().item()\n    kept.append('%d of %s' % (m, str({x}.numel())))\n    {n} = {x} * 2",
    "m = round(({x} > 0.37).double().mean().item(), 1)\n    {n} = {y} * m + [m, 2.0][n % 2]",
    "m = ({x} > {c}).sum()\n    {n} = {y}.reshape(-1)[m.item() // 2 :]\n    m += 1\n    kept.append(m.item() * 2)",
    "m = math.sqrt(float(({x} > 0.37).sum()))\n    {n} = {y} * m + m",
    "m = 1 / ({x} > 0.37).sum().item()\n    {n} = {y} * m",
    "p, q = int({x}.abs().max() + 0.0707), n\n    {n} = {y}.reshape(-1)[min(p, q) : p + q + 1] * {c}",
    "m = int({x}.abs().sum() * 0.0707) + 1\n    {n} = {y}.repeat(m, *[1] * {y}.dim()).sum(0) + torch.arange(m).sum()",
    "m = ({x} > 0.37).sum().item()\n    torch._check(m < 7)\n    {n} = {y}.reshape(-1).narrow(0, 0, m).cumsum(0)",
    "m = int(({x} > 0.37).long().argmin())\n    {x}.view(-1)[m] = {c}\n    {n} = {x}.view(-1)[m :] * m",
    "where = {x}.nonzero()\n    assert len(where) > 1\n    {n} = where.sum(0) + where.shape[0]",
    "m = ({x} > 0.37).long().argmax(0).reshape(-1)[0].item()\n    {n} = F.pad({y}, (m, 0), value={c}) if m < 9 else {y}",
)
RETURNS = (
    "({x}, n, k)",
    "{{'x': {x}, 'n': n * 2, 's': [slice(n, None), k * 2]}}",
    "{x}",
    "({x}, {y})",
    "[{x}, ({y}, {z})]",
    "{{'x': {x}, 'rest': [{y}, {{'z': {z}}}]}}",
    "({x}, {x}, 3, None)",
    "{x}, {y}[0]",
)


def execute(source, what, space):
    """Runs `source` in `space`, with its lines known to tracebacks and inspect."""
    file = f"<random {what} {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), space)


def function_of(statements, result, name="program"):
    """(function, source)"""
    body = "\n".join(f"    {s}" for s in statements)
    if "kept" in body:
        body, result = f"    kept = []\n{body}", f"[kept, {result}]"
    source = f"def {name}(a, b, c, n, k):\n{body}\n    return {result}\n"
    space = {"torch": torch, "F": F, "math": math, "random": random, "torchbolt": torchbolt}
    execute(source, "program", space)
    return space[name], source


def has_empty_inputs(seed):
    """In any of the calls."""
    return any(t.numel() == 0 for i in range(4) for t in inputs_of((seed, i)))


def inputs_of(seed):
    """Three tensors; some do not lie row by row. In some programs one size differs between calls."""
    seed, which = seed
    choose = random.Random(seed)
    values = torch.Generator().manual_seed(seed * 10 + which)
    tensors = []
    base = choose.choice(SIZES if choose.random() < 0.9 else EMPTY)
    # It grows, also from nothing, or shrinks to it.
    differs = choose.choice(base) if choose.random() < 0.4 else None
    which = which if choose.random() < 0.7 else -which
    lowest = choose.choice((torch.bfloat16, torch.float16)) if choose.random() < 0.08 else torch.float32
    for i in range(3):
        sizes = base if i == 0 or choose.random() < 0.6 else choose.choice(SIZES)
        sizes = tuple(max(size + which, 0) if size == differs else size for size in sizes)
        t = torch.randn(sizes, generator=values)
        if choose.random() < 0.2:
            t = torch.randn(sizes[::-1], generator=values).permute(*reversed(range(len(sizes))))
        if choose.random() < 0.12:
            dtype = choose.choice(DTYPES)
            t = (t * 3).abs().to(dtype) if dtype in (torch.uint8, torch.bool) else (t * 3).to(dtype)
        elif choose.random() < 0.8:
            t = t.to(lowest)
        elif choose.random() < 0.15:
            t = torch.complex(t, torch.randn(t.shape, generator=values))
        tensors.append(t)
    return tensors


def numbers_of(seed):
    """n and k; the first program is for those of which 0."""
    choose = random.Random(f"{seed}")
    n = choose.randrange(6) if choose.random() < 0.85 else choose.choice((-1, -2, 7, 40, True))
    return n, choose.choice((0.5, -1.25, 2.0, 3.5, 0.125, 0.0, -0.0, 3, 1e3))


def copies(tensors, dtype=None):
    """Fresh memory of the same layout; floats of `dtype`."""
    wide = {torch.complex64: torch.complex128}
    kept = lambda t: t.dtype if dtype is None else dtype if t.is_floating_point() else wide.get(t.dtype, t.dtype)
    return [torch.empty_strided(t.shape, t.stride(), dtype=kept(t)).copy_(t) for t in tensors]


class default_dtype:
    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *error):
        torch.set_default_dtype(self.before)


class Growing:
    """What is under construction: its statements, the names of its tensors, and what it returns. Who derives from it says
    how it grows by a statement and whether statements run."""

    def __init__(self, seed, names, statements):
        self.random = random.Random(seed)
        self.names, self.statements = names, statements
        self.result = names[0]

    def build(self, length, returns):
        for _ in range(8 * length):
            if len(self.statements) >= length:
                break
            self.grow()
        for _ in range(8):
            result = self.fill(self.random.choice(returns))
            if self.runs(self.statements, result):
                self.result = result
                break

    def fill(self, template, name=""):
        pick = lambda: self.names[max(self.random.randrange(len(self.names)) for _ in range(2))]
        constant = self.random.choice((0.5, 2, -1.5, 3, 0.25))
        return template.format(x=pick(), y=pick(), z=pick(), c=constant, n=name)

    def add(self, statement, name=None):
        """Keeps a statement, which makes `name`, if it runs."""
        names = [*self.names, name] if name else self.names
        if self.runs([*self.statements, statement], f"({', '.join(names)},)"):
            self.statements.append(statement)
            self.names = names


class Program(Growing):
    """A function under construction."""

    def __init__(self, seed, length):
        super().__init__(seed, ["a", "b", "c"], [])
        self.seed = seed
        self.inputs, self.numbers = inputs_of((seed, 0)), numbers_of((seed, 0))
        self.build(length, RETURNS)

    def grow(self):
        name = f"v{len(self.statements)}"
        family = self.random.choice(
            (UNARY, VIEWS, BINARY, BINARY, REDUCTIONS, INDICES, IN_PLACE, IN_PLACE, BREAKS, RAISES, PYTHON, NUMBERS,
             NUMBER_STATEMENTS, DATA)
        )  # fmt: skip
        text = self.fill(self.random.choice(family), name)
        if "autocast" in text and has_empty_inputs(self.seed):
            return  # torch 2.11 divides by zero in bfloat16 products of nothing
        makes = family is not IN_PLACE
        is_whole = family in (BREAKS, RAISES, PYTHON, IN_PLACE, NUMBER_STATEMENTS, DATA)
        statement = text if is_whole else f"{name} = {text}"
        self.add(statement, name if makes else None)

    def runs(self, statements, result):
        """Without an error, and the same in float64 up to rounding, for every value it has."""
        fn, _ = function_of(statements, result)
        try:
            random.seed(0)
            single = fn(*copies(self.inputs), *self.numbers)
            random.seed(0)
            with default_dtype(torch.float64):
                double = fn(*copies(self.inputs, torch.float64), *self.numbers)
        except Exception:
            return False
        return well_conditioned(single, double, rounding(self.inputs, statements))


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def rounding(inputs, statements):
    """The type of the fewest digits that a program computes in, float32 at least."""
    used = [t.dtype for t in inputs if t.is_floating_point()] + [torch.float32]
    used += [torch.bfloat16] * any("bfloat16" in s for s in statements)
    return max(used, key=lambda d: torch.finfo(d).eps)


def well_conditioned(single, double, dtype=torch.float32):
    """Are they the same up to rounding in `dtype`?"""
    near = max(1e-5, 4 * torch.finfo(dtype).eps)
    for s, d in zip(tensors_in(single), tensors_in(double), strict=True):
        if s.shape != d.shape or s.is_floating_point() != d.is_floating_point() or s.numel() > 4096:
            return False
        if s.numel() == 0:
            continue
        if not s.is_floating_point() and not s.is_complex():
            if not torch.equal(s, d):
                return False
        elif not bool(torch.isfinite(d).all()) or float(d.abs().max()) > 1e4:
            return False
        elif not float((s - d).abs().max()) <= near * max(1.0, float(d.abs().max())):  # or it is NaN in one of them
            return False
    return True
