# tests/fuzz/gradients.py
"""Seed -> a random function that gradients are needed of, and what is done with what it gives.

programs.py is about what a call gives. This is about what autograd makes of it: of the tensors that are given some are
leaves, some are made of leaves, and some have no gradient; what is done afterwards (events) is all that eager's graph
can be asked for: hooks, partial passes, passes that are repeated and added up, gradients of gradients, writes to results
and to what was saved.

A statement is kept only when float32 and float64 agree on the gradients, too.
"""

from __future__ import annotations

import contextlib
import random

import programs
import torch

UNARY = (
    "{x}.relu()", "{x}.sigmoid()", "{x}.tanh()", "{x}.exp().clamp(max=20)", "{x}.abs().add(0.5).log()", "-{x}", "F.gelu({x})",
    "F.silu({x})", "({x}.abs() + 0.3).sqrt()", "{x} * 2 + 1", "{x} / 3", "{x} ** 2", "{x}.clamp(-1, 1)", "{x}.clone()", "{x}.detach()",
    "torch.sin({x})", "F.softmax({x}, -1)", "F.layer_norm({x}, {x}.shape[-1:])", "torch.where({x} > 0.3, {x}, {c})", "{x}.erf()",
    "{x}.masked_fill({x} < 0, {c})", "{x}.cumsum(-1)", "{x}.sort(-1).values", "{x}.double().mul({c}).to({x}.dtype)", "F.softplus({x})",
    "F.mish({x})", "F.elu({x})", "F.hardswish({x})", "F.leaky_relu({x}, 0.1)", "F.log_softmax({x}, 0)", "F.normalize({x}, dim=-1)",
    "{x}.cumprod(-1)", "{x}.roll(1, -1)", "{x}.logcumsumexp(0)", "F.gelu({x}, approximate='tanh')", "F.rms_norm({x}, {x}.shape[-1:])",
    "F.dropout({x}, 0.5)", "{x}.round() * {x}", "F.logsigmoid({x})", "{x}.cummax(-1).values", "{x}.atan()", "torch.nan_to_num({x})",
    "{x}.sign() * {x}", "F.softmin({x}, 0)", "F.hardtanh({x})", "torch.special.expit({x})", "{x}.float().requires_grad_().to({x}.dtype) * 1",
    "{x}.cummin(-1).values", "F.celu({x})", "F.selu({x})", "F.glu({x}.repeat(*[1] * ({x}.dim() - 1), 2))", "F.hardshrink({x}, 0.3)", "F.softshrink({x}, 0.3)",
    "F.relu6({x} * 3)", "torch.sinc({x} + 0.3)", "torch.special.i0e({x})", "torch.special.i1({x})", "torch.special.log_ndtr({x})", "({x}.abs() + 1).digamma()",
    "torch.special.entr({x}.abs() + 0.2)", "{x}.abs().add(0.2).rsqrt()", "{x}.logit(0.2)", "{x}.tan().clamp(-4, 4)", "{x}.acosh().nan_to_num(0.5)", "({x} * 0.3).asin()",
    "{x}.renorm(2, 0, 1.5)", "F.alpha_dropout({x}, 0.2, training={flag})", "{x}.flatten().view(-1, 1).mT", "{x}.bfloat16().to({x}.dtype)", "{x}.abs().lgamma()",
    "F.batch_norm({x}.reshape(-1, {x}.shape[-1]), None, None, training=True)", "F.instance_norm({x}[None])", "torch.exp2({x})", "{x}.trunc() + {x}.frac()", "{x}.expm1()",
    "{x}.square().log1p()", "torch.view_as_real(torch.complex({x}, {x}.sin()))", "torch.fft.rfft({x}).abs()", "torch.fft.fft({x}).real", "{x}.conj() * {x}", "{x}.real + 1",
    "torch.fft.irfft(torch.fft.rfft({x}), n={x}.shape[-1])", "torch.polar({x}.abs() + 0.1, {x}).imag", "{x}.angle() * {x}", "{x}.clamp(min={x}.mean(), max={x}.amax() * 0.5)",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / ({y}.abs() + 1)", "torch.maximum({x}, {y})", "torch.cat([{x}, {y}], -1)", "torch.stack([{x}, {y}])",
    "{x} @ {y}", "{x} @ {y}.mT", "torch.where({y} > 0, {x}, {y})", "F.linear({x}, {y})", "torch.addcmul({x}, {x}, {y})", "{x}.lerp({y}, 0.25)",
    "{x}.expand_as({y})", "{x}.reshape({y}.shape)", "torch.outer({x}.reshape(-1)[:3], {y}.reshape(-1)[:4])", "torch.logaddexp({x}, {y})",
    "torch.atan2({x}, {y}.abs() + 1)", "F.mse_loss({x}, {y})", "F.smooth_l1_loss({x}, {y})", "torch.einsum('...i,...i->...', {x}, {y})",
    "F.cosine_similarity({x}, {y}, dim=-1)", "F.scaled_dot_product_attention({x}, {y}, {y})", "torch.baddbmm({x}[None], {x}[None], {y}[None])",
    "F.binary_cross_entropy_with_logits({x}, {y}.sigmoid())", "F.conv1d({x}.reshape(1, 1, -1), {y}.reshape(1, 1, -1)[..., :3])",
    "torch.linalg.vector_norm({x} - {y} + 1, dim=-1)", "F.prelu({x}, {y}.reshape(-1)[:1])", "F.group_norm({x}.reshape(1, 2, -1), 2)",
    "{x} * {y}.detach()", "{x} + {x}.detach() * {y}", "F.kl_div({x}.log_softmax(-1), {y}.softmax(-1), reduction='batchmean')", "torch.hypot({x}, {y} + 2)",
    "F.layer_norm({x}, {x}.shape[-1:], {y}.reshape(-1)[: {x}.shape[-1]], {y}.reshape(-1)[-{x}.shape[-1] :])", "torch.addmm({y}.sum(0), {x}, {x}.T @ {x})",
    "torch.addcdiv({x}, {y}, {x}.abs() + 1, value=0.5)", "torch.bmm({x}[None], {y}.mT[None])", "torch.mv({x}, {y}.reshape(-1)[: {x}.shape[-1]])", "torch.dist({x}, {y} + 1)",
    "torch.cdist({x}, {y} + 2)", "F.pairwise_distance({x}, {y})", "F.huber_loss({x}, {y}, delta=0.5)", "F.l1_loss({x}, {y} + 5)", "F.binary_cross_entropy({x}.sigmoid(), {y}.sigmoid())",
    "F.nll_loss({x}.log_softmax(-1), {y}.argmax(-1) % {x}.shape[-1])", "F.cross_entropy({x}, {y}.softmax(-1), label_smoothing=0.1)", "F.cross_entropy({x}, {y}.argmax(-1) % {x}.shape[-1], weight={x}[0].detach().abs(), reduction='none')",
    "F.multi_margin_loss({x}, {y}.argmax(-1) % {x}.shape[-1])", "F.gaussian_nll_loss({x}, {y}, {y}.abs() + 0.5)", "F.poisson_nll_loss({x}, {y})", "F.margin_ranking_loss({x}, {y}, {y}.detach().sign())",
    "torch.xlogy({x}, {y}.abs() + 0.5)", "torch.kron({x}.reshape(-1)[:3], {y}.reshape(-1)[:4])", "torch.block_diag({x}, {y})", "torch.linalg.cross({x}[..., :3], {y}[..., :3])",
    "torch.tensordot({x}, {y}, dims=([-1], [-1]))", "torch.linalg.solve({x}[..., :2, :2] @ {x}[..., :2, :2].mT + torch.eye(2).to({x}.dtype), {y}[..., :2, :2])", "{x}.copysign({y})", "torch.fmod({x} * 3, {y}.abs() + 1)",
    "F.bilinear({x}, {y}, torch.ones(2, {x}.shape[-1], {y}.shape[-1]).to({x}.dtype))", "torch.minimum({x}, {y}.mean())", "{x}.masked_scatter({y} > 0, {y})", "torch.where({x} > {y}, {x}.mean(), {y})",
    "F.conv2d({x}.reshape(1, 1, -1, 2), {y}.reshape(-1)[:4].reshape(1, 1, 2, 2), {y}.reshape(-1)[:1], padding=1)", "F.conv_transpose1d({x}.reshape(1, 1, -1), {y}.reshape(-1)[:3].reshape(1, 1, 3), stride=2)",
    "F.scaled_dot_product_attention({x}[None, None], {y}[None, None], {y}[None, None], is_causal=True)", "F.grid_sample({x}.reshape(1, 1, -1, 2), {y}.tanh().reshape(-1)[:8].reshape(1, 2, 2, 2), align_corners={flag})",
    "F.scaled_dot_product_attention({x}, {y}, {y}, attn_mask={x} @ {y}.mT)", "torch.complex({x}, {x}).mul({c}).abs() + {y}", "torch.view_as_complex(torch.stack([{x}, {y}], -1)).abs()", "{x}.to({y}.dtype) * {y}", "torch.addmv({y}.sum(0).mean() + {x}[:, 0], {x}, {y}[0])",
)  # fmt: skip
REDUCTIONS = (
    "{x}.sum()", "{x}.sum(-1)", "{x}.mean(0)", "{x}.mean(-1, keepdim=True)", "{x}.amax(-1)", "{x}.max(0).values", "{x}.var(-1)", "{x}.norm()",
    "{x}.logsumexp(0)", "{x}.min()", "{x}.prod(-1)", "{x}.std(0)", "torch.var_mean({x}, 0)[0]", "{x}.square().sum(-1, keepdim=True)", "{x}.median()",
    "F.avg_pool1d({x}.reshape(1, 1, -1), 2)", "F.max_pool1d({x}.reshape(1, 1, -1), 3, 1)", "F.cross_entropy({x}, {x}.argmax(-1))", "{x}.nansum(0)",
    "{x}.amin(0)", "{x}.aminmax(dim=-1)[0]", "{x}.std(-1, keepdim=True)", "{x}.norm(1, -1)", "{x}.norm(float('inf'))", "torch.linalg.vector_norm({x}, 3, dim=0)", "torch.std_mean({x}, -1)[1]", "{x}.kthvalue(2, -1).values",
    "torch.linalg.matrix_norm({x})", "F.avg_pool2d({x}.reshape(1, 1, -1, 2), 2)", "F.max_pool2d({x}.reshape(1, 1, -1, 2), 2, 1)", "F.adaptive_max_pool1d({x}.reshape(1, 1, -1), 3)", "F.lp_pool1d({x}.abs().reshape(1, 1, -1) + 1, 2, 2)",
    "torch.trace({x})", "torch.linalg.det({x}[..., :2, :2])", "torch.linalg.eigvalsh({x}[..., :2, :2])", "torch.linalg.svdvals({x})", "torch.linalg.qr({x})[1].abs()", "torch.quantile({x}, 0.3, -1)", "{x}.mode(-1).values", "torch.cov({x})",
    "{x}.sum((0, -1), keepdim=True)", "{x}.sum(dtype=torch.float64).to({x}.dtype)", "{x}.prod()", "torch.trapezoid({x}, dim=-1)", "torch.linalg.slogdet({x}[..., :2, :2] + 3 * torch.eye(2).to({x}.dtype))[1]",
)  # fmt: skip
INDICES = (
    "{x}.gather(-1, {x}.argsort(dim=-1, stable=True))", "{x}[torch.arange(2)]", "{x}.index_select(0, torch.arange(2))", "torch.tril({x})",
    "F.pad({x}, (1, 2), value={c})", "{x}.topk(2, -1).values", "{x}.scatter_add(0, torch.zeros_like({x}, dtype=torch.long), {x})", "{x}[[0, -1]]",
    "{x}.take_along_dim({x}.argmax(-1, keepdim=True), -1)", "{x}.index_add(0, torch.arange({x}.shape[0]), {x})", "{x}.diff(dim=-1)", "{x}.flip(0)",
    "F.embedding(torch.tensor([1, 0, 1]), {x})", "F.interpolate({x}.reshape(1, 1, -1), scale_factor=2)", "torch.diag_embed({x})", "{x}[{x} > 0.2]",
    "{x}.scatter_reduce(0, torch.zeros_like({x}, dtype=torch.long), {x} * 2, 'amax')", "{x}.scatter_reduce(0, torch.zeros_like({x}, dtype=torch.long), {x}, 'mean', include_self={flag})", "{x}.index_reduce(0, torch.tensor([0, 0]), {x}[:2] + 3, 'prod')",
    "{x}.select_scatter({x}[0] * 2, 0, 1)", "{x}.slice_scatter({x}[:1] * 2, 0, 1, 2)", "{x}.diagonal_scatter({x}.diagonal() * 2)", "{x}.index_put((torch.tensor([0, 0]),), {x}[:2], accumulate=True)", "{x}.index_copy(0, torch.tensor([1]), {x}[:1] * 2)",
    "{x}.take(torch.tensor([0, 2, 2]))", "{x}.put(torch.tensor([0, 1]), {x}.reshape(-1)[-2:], accumulate={flag})", "F.pad({x}[None], (1, 1), mode='reflect')", "F.pad({x}[None], (1, 1), mode='circular')", "F.pad({x}[None], (1, 2), mode='replicate')",
    "F.unfold({x}.reshape(1, 1, -1, 2), 2)", "F.fold({x}.reshape(-1)[:12].reshape(1, 4, 3), (2, 4), 2)", "F.pixel_shuffle({x}.reshape(-1)[:4].reshape(1, 4, 1, 1), 2)", "F.interpolate({x}.reshape(1, 1, -1, 2), scale_factor=2, mode='bilinear')",
    "F.interpolate({x}.reshape(1, 1, -1, 2), scale_factor=2, mode='bicubic')", "{x}[..., torch.tensor([0, 0, 1])]", "{x}[torch.tensor([0, 1]), torch.tensor([1, 1])]", "torch.combinations({x}.reshape(-1)[:4])", "torch.cartesian_prod({x}.reshape(-1)[:2], {x}.reshape(-1)[:3])",
    "torch.vander({x}.reshape(-1)[:3], 3)", "{x}.masked_select({x} > 0)", "F.embedding_bag(torch.tensor([[0, 1, 1]]), {x}, mode='mean')", "torch.gradient({x}, dim=-1)[0]", "{x}.sort(0, descending=True).values.triu()", "{x}[torch.tensor([True] + [False] * ({x}.shape[0] - 1))]",
)  # fmt: skip
VIEWS = tuple(v for v in programs.VIEWS if "int32" not in v)
IN_PLACE = (
    "{x}.add_({c})", "{x}.mul_({y})", "{x}.sub_({y})", "{x}.relu_()", "{x} += {y}", "{x} *= {c}", "{x}[0] = {c}", "{x}[1:].mul_({c})", "{x}.sigmoid_()",
    "{x}[..., 0].add_({c})", "{x}.t().add_({y})", "{x}.view(-1)[1:3].fill_({c})", "{x}.copy_({y})", "{x}.zero_()", "{x}.tanh_()", "{x}.clamp_(-1, 1)",
    "{x}[..., ::2] = {y}[..., ::2]", "{x}.transpose(0, -1)[0].mul_({c})", "{x}[{x} > 0] = {c}", "{x}.masked_fill_({x} < 0, {c})", "{x}[0].copy_({x}[-1])",
    "{x}[1:] = {x}[:-1].clone()", "{x}.unsqueeze(0).neg_()", "{x}.detach().add_({c})", "{x}.narrow(0, 0, 1).exp_().clamp_(max=9)", "{x}[0] = {y}[0] * 2",
    "{x}.addcmul_({x}, {y}, value=0.5)", "{x}.lerp_({y}, 0.3)", "{x}.index_add_(0, torch.tensor([0]), {y}[:1])", "{x}.scatter_add_(0, torch.zeros_like({x}, dtype=torch.long), {y})", "{x}.index_put_((torch.tensor([0]),), {y}[-1:], accumulate={flag})",
    "{x}.diagonal().mul_({c})", "{x}.masked_scatter_({x} > 0, {y})", "{x}.cumsum_(0)", "{x}.t_().mul_({c}).t_()", "{x}.unflatten(-1, (-1, 2))[..., 0].add_({y}.mean())", "{x}[..., :1].expand_as({x})[..., :1].mul_({c})", "{x}.squeeze_()", "{x}.swapaxes_(0, -1)",
    "torch._foreach_mul_([{x}[0], {x}[1]], {c})", "{x}.atan_()", "{x}.pow_(2)", "{x}.copy_({y}.expand_as({x}))", "{x}.index_fill_(0, torch.tensor([0]), {c})", "{x}.unbind(0)[0].mul_({c})", "{x}.chunk(2, -1)[1].add_({y}.mean())", "F.dropout({x}, 0.5, inplace=True)",
)  # fmt: skip
WHOLE = (
    "with torch.no_grad():\n        {n} = {x} * {c}\n    {n} = {n} + {y}",
    "with torch.no_grad():\n        {n} = {x}.detach().clone()\n        {n} += 1\n    {n} = {n} * {y}",
    "with torch.no_grad():\n        scale = {x}.abs().amax()\n        with torch.enable_grad():\n            {n} = {y} * 2\n    {n} = {n} / (scale + 1)",
    "{n} = torch.utils.checkpoint.checkpoint(lambda p, q: (p.tanh() * q).sum(-1).sigmoid(), {x}, {y}, use_reentrant=False)",
    "{n} = torch.utils.checkpoint.checkpoint(lambda p: F.dropout(p.tanh() * p, 0.5), {x}, use_reentrant={flag})",
    "{n} = {x} * {c}\n    torchbolt.graph_break()\n    {n} = {n} + {y}.sum()",
    "{n} = ({x} * 2).clone()\n    {n}.register_hook(lambda g: g * 0.5)",
    "{n} = {x} * {y}\n    if {n}.requires_grad:\n        {n}.retain_grad()",
    "for part in {x}.unbind(0):\n        {n} = part * {c} + {y}.mean()",
    "{n} = {x}.clone()\n    {n}[..., 0] = {y}.sum()\n    {n} = {n} * {n}",
    "{n} = {x} * 1\n    view = {n}[0]\n    {n}.mul_({c})\n    {n} = view * {y}.mean()",
    "{n} = {x}.exp().clamp(max=9)\n    {n} = {n} + 0\n    {n}.add_({y}.mean())",
    "{n}, rest = {x}.chunk(2, -1)\n    {n} = {n}.tanh() * rest.sum()",
    "a, b = b, a\n    {n} = a.sum() + b.mean() * {x}",
    "{n} = Sine.apply({x}, {c}) + {y}.mean()",
    "{n} = Straight.apply({x} * 1) * {y}.mean()",
    "{n} = Halves.apply({x})[1] * {y}.mean()",
    "with torch.autocast('cpu', dtype=torch.bfloat16, enabled=False):\n        {n} = {x}.tanh() * {y}.mean()",
    "{n} = torch.func.grad(lambda t: (t.sin() * {y}.mean()).sum())({x})",
    "if {x}.requires_grad:\n        {n} = {x} * 2\n    else:\n        {n} = {x} * 3",
    "{n} = Doubled.apply({x} * 1)\n    {n} = {n} + {y}.mean()",
    "{n} = Either.apply({x}, {y})[{i}] * 2",
    "{n}, rest = Either.apply({x}, {y})\n    {n} = {n} * rest.mean()",
    "{n} = SavesResult.apply({x}) * {y}.mean()",
    "{n} = Shown.apply({x}).mul({c})",
    "p = {x}.detach().clone().requires_grad_()\n    {n} = torch.autograd.grad((p.sin() * {y}.mean()).sum(), p, create_graph=True)[0] * {c}",
    "p = {x}.detach().clone().requires_grad_()\n    (p.square() * {y}.detach().mean()).sum().backward()\n    {n} = p.grad + {y}",
    "p = {x} * 1\n    for _ in range(2):\n        p = p - 0.1 * torch.autograd.grad((p.cos() * {y}.mean()).sum(), p, create_graph=True)[0]\n    {n} = p",
    "{n} = torch.autograd.grad(({x} ** 3).sum(), {x}, create_graph={flag})[0] + {y}",
    "(({x} * 1).sigmoid() * {y}).sum().backward(retain_graph={flag})\n    {n} = {x} * {c}",
    "with torch.enable_grad():\n        {n} = ({x}.detach().requires_grad_() * {y}).sum(-1)",
    "{n} = ({x} * 2).detach_() * {y}",
    "{n} = {x}.detach().requires_grad_({flag}) * {y}",
    "{n} = {x} * 1\n    {n}.requires_grad_().register_hook(lambda g: None)\n    {n} = {n} * {y}",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n        {n} = F.linear({x}, {y}.reshape(-1, {x}.shape[-1])).float()",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n        {n} = ({x} @ {y}.mT).softmax(-1) + ({x} @ {y}.mT).sum()",
    "{n} = torch.func.vmap(lambda r: r * {c} + r.sum())({x})",
    "{n} = torch.func.jvp(lambda t: t.sin() * {y}.mean(), ({x},), ({x} * {c},))[1]",
    "{n} = torch.func.jacrev(lambda t: t.sin().cumsum(0))({x}.reshape(-1)[:3]) * {y}.mean()",
    "with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):\n        {n} = {x}.sin() * {y}.mean()",
    "{n} = torch.utils.checkpoint.checkpoint(lambda p: torch.utils.checkpoint.checkpoint(torch.sin, p * {c}, use_reentrant=False) * p, {x}, use_reentrant=False)",
    "view = {x}.view(-1)\n    with torch.no_grad():\n        copy = view.clone()\n    {n} = view * copy + {y}.sum()",
    "{n} = {x} * {y}\n    {y} = {y} * 1\n    {y}.mul_({c})\n    {n} = {n} + {y}.sum()",
    "{n} = {x}.new_zeros({x}.shape)\n    {n}[..., 1:] = {x}[..., 1:] * 2\n    {n}[0] += {y}.mean()",
    "parts = [row.cumsum(0) for row in {x}.unbind(0)]\n    parts[0].mul_({c})\n    {n} = torch.stack(parts)",
    "outer = {x}.new_empty(2, *{x}.shape)\n    outer[0].copy_({x})\n    outer[1] = {x} * {y}.mean()\n    {n} = outer.sum(0)",
    "with torch.set_grad_enabled({flag}):\n        {n} = {x} * {y}.mean()\n    {n} = {n} + {x}",
    "mean, var = torch.zeros({x}.shape[-1]).to({x}.dtype), torch.ones({x}.shape[-1]).to({x}.dtype)\n    {n} = F.batch_norm({x}.reshape(-1, {x}.shape[-1]), mean, var, {x}.reshape(-1)[: {x}.shape[-1]], training={flag})\n    {n} = {n} + mean",
)
RETURNS = (
    "({x},)", "({x}, {y})", "({x}, {y}, {z})", "({x}, {x}, {y})", "({x}, {y}[0])", "({x}, {x}.detach(), {y})", "({x}, {x} * 2)", "({x}.t(), {y}, {x})",
    "({x}.sum(), {x})", "({x}, {y}.reshape(-1), {z}.unbind(0)[0])",
)  # fmt: skip

PRELUDE = """
class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.sin() * scale
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x.cos() * ctx.scale, None

class Straight(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return (x * 2).round() / 2
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.sizes = inputs[0].shape
    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1).reshape(ctx.sizes)

class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        signs = x > 0
        ctx.mark_non_differentiable(signs)
        y = x.exp()
        ctx.save_for_backward(y, signs)
        return signs, y.clamp(max=9)
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _, g):
        y, signs = ctx.saved_tensors
        return torch.where(signs, g * y.clamp(max=9), g)

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x
    @staticmethod
    def backward(ctx, g):
        return g * 2

class Either(torch.autograd.Function):
    # Of two results, of which nothing may be asked.
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x.sin(), y * 3
    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        first = None if g is None or not ctx.needs_input_grad[0] else g * x.cos()
        return first, None if h is None else h * 3

class SavesResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * (1 - y * y)

class Shown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, g):
        return g * 0.5
"""


def function_of(statements, result, name="program"):
    """(function, source)"""
    body = "\n".join(f"    {s}" for s in statements)
    source = f"def {name}(a, b, c):\n{body}\n    return {result}\n"
    space = {"torch": torch, "F": torch.nn.functional, "torchbolt": programs.torchbolt}
    exec(PRELUDE, space)
    programs.execute(source, "gradients", space)
    return space[name], source


KINDS = (
    "leaf",
    "leaf",
    "leaf",
    "made",
    "made",
    "made",
    "plain",
    "plain",
    "viewed",
    "expanded",
    "parameter",
    "the first",
)
IMAGES = ((2, 4, 3, 5), (1, 2, 4, 4))


def inputs_of(seed, which):
    """Three tensors, and how autograd sees each. In some programs one size differs between calls."""
    choose = random.Random(seed)
    values = torch.Generator().manual_seed(seed * 10 + which)
    chance = choose.random()
    base = choose.choice(programs.EMPTY if chance < 0.04 else IMAGES if chance < 0.1 else programs.SIZES)
    differs = choose.choice(base) if choose.random() < 0.3 else None
    tensors = []
    for i in range(3):
        sizes = base if i == 0 or choose.random() < 0.6 else choose.choice(programs.SIZES)
        sizes = tuple(size + which % 3 if size == differs else size for size in sizes)
        t = torch.randn(sizes, generator=values)
        if choose.random() < 0.2:
            t = torch.randn(sizes[::-1], generator=values).permute(*reversed(range(len(sizes))))
        if base in IMAGES and t.dim() == 4 and choose.random() < 0.6:
            t = t.contiguous(memory_format=torch.channels_last)
        chance = choose.random()
        if chance < 0.12:
            t = t.to(choose.choice((torch.bfloat16, torch.float64, torch.float16)))
        elif chance < 0.17:
            t = torch.complex(t, torch.randn(t.shape, generator=values))
        tensors.append(t)
    kinds = [choose.choice(KINDS) for _ in tensors]
    if set(kinds) <= {"plain", "the first"}:
        kinds[0] = "made"
    return tensors, kinds


def given_of(tensors, kinds):
    """(leaves, arguments)"""
    leaves, given = [], []
    for t, kind in zip(tensors, kinds, strict=True):
        if kind == "the first" and given:
            given.append(given[0])
            continue
        if kind == "expanded" and t.dim() and t.shape[0]:
            leaves.append(t[:1].clone().requires_grad_())
            given.append(leaves[-1].expand(t.shape))
            continue
        if kind not in ("plain", "the first"):
            leaves.append(torch.nn.Parameter(t) if kind == "parameter" else t.requires_grad_())
        t = t if kind in ("plain", "the first") else leaves[-1]
        given.append(t.clone() if kind == "made" else t.view_as(t) if kind == "viewed" else t)
    return leaves, given


def total(t):
    """A real number that all of the tensor leads to."""
    return t.real.sum() + 0.5 * t.imag.sum() if t.is_complex() else t.sum()


def rounding(tensors, statements):
    """As programs.rounding; what is read by name in a format of fewer digits counts, too."""
    return programs.rounding([t for t in tensors if t.dtype != torch.float64], statements)


class Program(programs.Growing):
    """A function under construction."""

    def __init__(self, seed, length):
        super().__init__(seed, ["a", "b", "c"], [])
        self.seed = seed
        self.inputs, self.kinds = inputs_of(seed, 0)
        self.build(length, RETURNS)
        self.events = events_of(self.random)

    def fill(self, template, name=""):
        template = template.replace("{flag}", str(self.random.random() < 0.5))
        return super().fill(template.replace("{i}", str(self.random.randrange(2))), name)

    def grow(self):
        name = f"v{len(self.statements)}"
        family = self.random.choice((UNARY, UNARY, VIEWS, BINARY, BINARY, BINARY, REDUCTIONS, INDICES, IN_PLACE, WHOLE))
        text = self.fill(self.random.choice(family), name)
        statement = text if family in (IN_PLACE, WHOLE) else f"{name} = {text}"
        self.add(statement, name if family is not IN_PLACE else None)

    def runs(self, statements, result):
        fn, _ = function_of(statements, result)
        found = []
        for dtype in (None, torch.float64):
            try:
                with programs.default_dtype(dtype or torch.float32):
                    torch.manual_seed(0)
                    leaves, given = given_of(programs.copies(self.inputs, dtype), self.kinds)
                    results = list(fn(*given))
                    followed = [t for t in results if t.requires_grad]
                    if not followed or sum(t.numel() for t in results) > 4096:
                        return False
                    gradients = torch.autograd.grad(sum(map(total, followed)), leaves, allow_unused=True)
            except Exception:
                return False
            found.append([t.detach() for t in [*results, *gradients] if t is not None])
        return len(found[0]) == len(found[1]) and programs.well_conditioned(*found, rounding(self.inputs, statements))


# ---- what is done with the results ----


def events_of(choose):
    """(before the call, after it): names and the numbers that decide what each does."""
    before = [n for n in ("leaf hooks", "accumulation hooks", "packing", "anomaly") if choose.random() < 0.12]
    after = [(choose.choice(AFTER), choose.random(), choose.random()) for _ in range(choose.randint(1, 4))]
    return before, [*after, ("backward", choose.random(), choose.random())]


class Use:
    """What comes of one call, for the caller: by name."""

    def __init__(self, fn, tensors, kinds, events):
        self.seen = {}
        self.leaves, given = given_of(tensors, kinds)
        self.handles = []
        before, after = events
        with contextlib.ExitStack() as around:
            for name in before:
                getattr(self, name.replace(" ", "_"))(around)
            results = fn(*given)
            self.note("results", [t.detach().clone() for t in results])
            self.results = [t for t in results if t.requires_grad]
            self.all, self.fn, self.given = list(results), fn, given
            for i, (name, a, b) in enumerate(after):
                self.do(f"{i} {name}", name, a, b)
        self.note("result", list(self.all))
        self.do("retained", "retained", 0, 0)
        self.gradients = [leaf.grad for leaf in self.leaves]

    def note(self, name, value):
        self.seen.setdefault(name, []).append(value)

    def do(self, where, name, a, b):
        try:
            with contextlib.nullcontext() if name in WITH_HISTORY else torch.no_grad():
                self.note(where, getattr(self, name.replace(" ", "_"))(a, b))
        except (RuntimeError, IndexError, ValueError, TypeError, AssertionError) as error:
            self.note(where, kind_of_error(error))

    # Before the call.

    def leaf_hooks(self, around):
        for i, leaf in enumerate(self.leaves):
            leaf.register_hook(lambda g, i=i: self.hooked(f"hook {i}", g, i + 1))

    def accumulation_hooks(self, around):
        for i, leaf in enumerate(self.leaves):
            leaf.register_post_accumulate_grad_hook(lambda t, i=i: self.accumulated(f"accumulated {i}", t))

    def hooked(self, name, gradient, factor):
        """Hooks are told of a gradient that a function has not given, too."""
        self.note(name, None if gradient is None else gradient.clone())
        return None if gradient is None else gradient * factor

    def accumulated(self, name, leaf):
        """Who has no gradient may have been come to all the same, as by functions that give none."""
        if leaf.grad is not None:
            self.note(name, leaf.grad.clone())

    def packing(self, around):
        around.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(),), lambda p: p[0]))

    def anomaly(self, around):
        around.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))

    # After it.

    def loss(self, a):
        with torch.enable_grad():
            chosen = [t for i, t in enumerate(self.results) if int(a * 8) >> i & 1] or self.results
            return sum(total(t * (0.5 + 0.25 * i)) for i, t in enumerate(chosen))

    def some(self, a):
        return [t for i, t in enumerate(self.leaves) if int(a * 8) >> i & 1] or self.leaves

    def backward(self, a, b):
        self.loss(a).backward(retain_graph=b < 0.5)

    def backward_of_some(self, a, b):
        self.loss(a).backward(retain_graph=b < 0.8, inputs=self.some(b))

    def grad(self, a, b):
        return torch.autograd.grad(self.loss(a), self.some(b), retain_graph=b < 0.8, allow_unused=True)

    def of_each(self, a, b):
        tangents = [tangent_for(t, 0.5 + a, int(a * 64 + i) % 4) for i, t in enumerate(self.results)]
        return torch.autograd.grad(self.results, self.leaves, tangents, retain_graph=b < 0.8, allow_unused=True)

    def between_results(self, a, b):
        return torch.autograd.grad(self.loss(a), self.results[:1], retain_graph=True, allow_unused=True)

    def twice(self, a, b):
        first = torch.autograd.grad(self.loss(a), self.leaves, create_graph=True, allow_unused=True)
        again = [total(g * g) for g in first if g is not None and g.requires_grad]
        second = torch.autograd.grad(sum(again), self.leaves, retain_graph=True, allow_unused=True) if again else []
        return [None if g is None else g.detach() for g in first], list(second)

    def write_result(self, a, b):
        with torch.enable_grad():
            self.results[int(a * len(self.results))].mul_(0.5)

    def write_part(self, a, b):
        with torch.enable_grad():
            self.all[int(a * len(self.all))][..., 0].add_(1)

    def write_leaf(self, a, b):
        self.leaves[int(a * len(self.leaves))].add_(0.125)

    def write_detached(self, a, b):
        self.all[int(a * len(self.all))].detach().mul_(0.5)

    def hook(self, a, b):
        at = int(a * len(self.results))
        _ = self.results[at].grad_fn  # which raises where eager's register_hook would crash
        self.results[at].register_hook(lambda g: self.hooked(f"hook of result {at}", g, 0.5 + b))

    def retain(self, a, b):
        self.results[int(a * len(self.results))].retain_grad()

    def call_again(self, a, b):
        with torch.enable_grad():
            self.results += [t for t in self.fn(*self.given) if t.requires_grad]

    def retained(self, a, b):
        return [t.grad for t in self.results if not t.is_leaf and t.retains_grad]

    def penalty(self, a, b):
        """A step whose loss is of gradients, too."""
        loss = self.loss(a)
        slopes = torch.autograd.grad(loss, self.some(b), create_graph=True, allow_unused=True)
        (loss + sum(total(g * g) for g in slopes if g is not None)).backward(retain_graph=b < 0.5)

    def batched(self, a, b):
        at = int(a * len(self.results))
        tangents = torch.stack([tangent_for(self.results[at], 0.5 + i, i) for i in range(2)])
        more = {"retain_graph": b < 0.8, "allow_unused": True, "is_grads_batched": True}
        return self.apart(lambda: torch.autograd.grad(self.results[at], self.leaves, tangents, **more))

    def follow_tangents(self, a, b):
        """What gradients make of their tangents is differentiated."""
        at = int(a * len(self.results))
        tangent = tangent_for(self.results[at], 0.5 + b, 0).requires_grad_()
        first = torch.autograd.grad(self.results[at], self.leaves, tangent, create_graph=True, allow_unused=True)
        again = [total(g) for g in first if g is not None and g.requires_grad]
        return (
            list(torch.autograd.grad(sum(again), [tangent, *self.leaves], allow_unused=True, retain_graph=b < 0.8))
            if again
            else None
        )

    def optimize(self, a, b):
        kind = (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop)[int(a * 3)]
        kind([leaf for leaf in self.leaves if leaf.grad is not None] or self.leaves, lr=0.125).step()

    def write_part_of_leaf(self, a, b):
        self.leaves[int(a * len(self.leaves))][..., :1].mul_(0.5)

    def write_argument(self, a, b):
        with torch.enable_grad():
            self.given[int(a * 3)].mul_(1.5)

    def freeze(self, a, b):
        leaf = self.leaves[int(a * len(self.leaves))]
        leaf.requires_grad_(not leaf.requires_grad)

    def cut(self, a, b):
        self.results[int(a * len(self.results))].detach_()

    def give_gradient(self, a, b):
        leaf = self.leaves[int(a * len(self.leaves))]
        leaf.grad = tangent_for(leaf, a, 1 + int(b * 3))

    def hook_of_all(self, a, b):
        names = [f"together {i}" for i in range(len(self.results))]
        note = lambda gradients: [
            self.note(n, None if g is None else g.clone()) for n, g in zip(names, gradients, strict=True)
        ]
        torch.autograd.graph.register_multi_grad_hook(self.results, note)

    def within_a_transform(self, a, b):
        given = [t.detach().clone() for t in self.given]
        at = tuple(i for i, t in enumerate(given) if t.is_floating_point())[:1]
        of = lambda *args: sum(total(t) for t in self.fn(*args) if t.is_floating_point() or t.is_complex())
        return self.apart(lambda: torch.func.grad(of, at)(*given)) if at else None

    def forward_mode(self, a, b):
        def run():
            duals = [
                torch.autograd.forward_ad.make_dual(t.detach().clone(), torch.full_like(t, 0.5)) for t in self.given
            ]
            return [t.tangent for t in map(torch.autograd.forward_ad.unpack_dual, self.fn(*duals))]

        with torch.autograd.forward_ad.dual_level():
            return self.apart(run)

    def apart(self, run):
        """What is noted on the way is of tensors that are wrapped; eager cannot do all that we can."""
        seen = {name: list(value) for name, value in self.seen.items()}
        try:
            return run()
        except RuntimeError:
            raise RuntimeError("apart")
        finally:
            self.seen = seen
            for t in self.results:  # as is what they retain
                if not t.is_leaf and t.retains_grad:
                    t.grad = None

    def forget(self, a, b):
        for leaf in self.leaves:
            leaf.grad = None


AFTER = (
    "backward", "backward", "backward", "backward of some", "grad", "grad", "grad", "of each", "of each", "between results", "twice", "twice", "write result",
    "write part", "write leaf", "write detached", "hook", "retain", "call again", "forget", "penalty", "batched", "follow tangents", "optimize", "write part of leaf", "write argument", "freeze", "cut", "give gradient", "hook of all", "within a transform", "forward mode",
)  # fmt: skip
WITH_HISTORY = ("twice", "penalty", "follow tangents", "within a transform")


def tangent_for(t, value, way):
    """Of one number, which lies once (0), as the tensor does (1), the other way round (2), or with gaps (3)."""
    if way == 0:
        return torch.full((), value, dtype=t.dtype).expand(t.shape)
    if way == 2:
        return torch.full(t.shape[::-1], value, dtype=t.dtype).permute(*reversed(range(t.dim())))
    if way == 3:
        return torch.full((*t.shape, 2), value, dtype=t.dtype)[..., 0]
    return torch.full_like(t, value)


def kind_of_error(error):
    for known in ("modified by an inplace operation", "second time", "does not require grad", "leaf Variable", "leaf variable",
                  "is a view", "already been freed", "detach views", "detached in-place", "element 0 of tensors"):  # fmt: skip
        if known in str(error):
            return f"raised: {known}"
    return f"raised: {str(error)[:80]}"
