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
)  # fmt: skip
REDUCTIONS = (
    "{x}.sum()", "{x}.sum(-1)", "{x}.mean(0)", "{x}.mean(-1, keepdim=True)", "{x}.amax(-1)", "{x}.max(0).values", "{x}.var(-1)", "{x}.norm()",
    "{x}.logsumexp(0)", "{x}.min()", "{x}.prod(-1)", "{x}.std(0)", "torch.var_mean({x}, 0)[0]", "{x}.square().sum(-1, keepdim=True)", "{x}.median()",
    "F.avg_pool1d({x}.reshape(1, 1, -1), 2)", "F.max_pool1d({x}.reshape(1, 1, -1), 3, 1)", "F.cross_entropy({x}, {x}.argmax(-1))", "{x}.nansum(0)",
)  # fmt: skip
INDICES = (
    "{x}.gather(-1, {x}.argsort(dim=-1, stable=True))", "{x}[torch.arange(2)]", "{x}.index_select(0, torch.arange(2))", "torch.tril({x})",
    "F.pad({x}, (1, 2), value={c})", "{x}.topk(2, -1).values", "{x}.scatter_add(0, torch.zeros_like({x}, dtype=torch.long), {x})", "{x}[[0, -1]]",
    "{x}.take_along_dim({x}.argmax(-1, keepdim=True), -1)", "{x}.index_add(0, torch.arange({x}.shape[0]), {x})", "{x}.diff(dim=-1)", "{x}.flip(0)",
    "F.embedding(torch.tensor([1, 0, 1]), {x})", "F.interpolate({x}.reshape(1, 1, -1), scale_factor=2)", "torch.diag_embed({x})", "{x}[{x} > 0.2]",
)  # fmt: skip
VIEWS = tuple(v for v in programs.VIEWS if "int32" not in v)
IN_PLACE = (
    "{x}.add_({c})", "{x}.mul_({y})", "{x}.sub_({y})", "{x}.relu_()", "{x} += {y}", "{x} *= {c}", "{x}[0] = {c}", "{x}[1:].mul_({c})", "{x}.sigmoid_()",
    "{x}[..., 0].add_({c})", "{x}.t().add_({y})", "{x}.view(-1)[1:3].fill_({c})", "{x}.copy_({y})", "{x}.zero_()", "{x}.tanh_()", "{x}.clamp_(-1, 1)",
    "{x}[..., ::2] = {y}[..., ::2]", "{x}.transpose(0, -1)[0].mul_({c})", "{x}[{x} > 0] = {c}", "{x}.masked_fill_({x} < 0, {c})", "{x}[0].copy_({x}[-1])",
    "{x}[1:] = {x}[:-1].clone()", "{x}.unsqueeze(0).neg_()", "{x}.detach().add_({c})", "{x}.narrow(0, 0, 1).exp_().clamp_(max=9)", "{x}[0] = {y}[0] * 2",
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
"""


def function_of(statements, result, name="program"):
    """(function, source)"""
    body = "\n".join(f"    {s}" for s in statements)
    source = f"def {name}(a, b, c):\n{body}\n    return {result}\n"
    space = {"torch": torch, "F": torch.nn.functional, "torchbolt": programs.torchbolt}
    exec(PRELUDE, space)
    programs.execute(source, "gradients", space)
    return space[name], source


def inputs_of(seed, which):
    """Three tensors, and how autograd sees each. In some programs one size differs between calls."""
    choose = random.Random(seed)
    values = torch.Generator().manual_seed(seed * 10 + which)
    base = choose.choice(programs.SIZES)
    differs = choose.choice(base) if choose.random() < 0.3 else None
    tensors = []
    for i in range(3):
        sizes = base if i == 0 or choose.random() < 0.6 else choose.choice(programs.SIZES)
        sizes = tuple(size + which % 3 if size == differs else size for size in sizes)
        t = torch.randn(sizes, generator=values)
        if choose.random() < 0.2:
            t = torch.randn(sizes[::-1], generator=values).permute(*reversed(range(len(sizes))))
        tensors.append(t)
    kinds = [choose.choice(("leaf", "leaf", "made", "made", "plain")) for _ in tensors]
    if "leaf" not in kinds and "made" not in kinds:
        kinds[0] = "made"
    return tensors, kinds


def given_of(tensors, kinds):
    """(leaves, arguments)"""
    leaves = [t.requires_grad_() for t, kind in zip(tensors, kinds, strict=True) if kind != "plain"]
    return leaves, [t.clone() if kind == "made" else t for t, kind in zip(tensors, kinds, strict=True)]


class Program(programs.Growing):
    """A function under construction."""

    def __init__(self, seed, length):
        super().__init__(seed, ["a", "b", "c"], [])
        self.seed = seed
        self.inputs, self.kinds = inputs_of(seed, 0)
        self.build(length, RETURNS)
        self.events = events_of(self.random)

    def fill(self, template, name=""):
        return super().fill(template.replace("{flag}", str(self.random.random() < 0.5)), name)

    def grow(self):
        name = f"v{len(self.statements)}"
        family = self.random.choice((UNARY, UNARY, VIEWS, BINARY, BINARY, BINARY, REDUCTIONS, INDICES, IN_PLACE, WHOLE))
        text = self.fill(self.random.choice(family), name)
        statement = text if family in (IN_PLACE, WHOLE) else f"{name} = {text}"
        self.add(statement, name if family is not IN_PLACE else None)

    def runs(self, statements, result):
        fn, _ = function_of(statements, result)
        found = []
        for dtype in (torch.float32, torch.float64):
            try:
                with programs.default_dtype(dtype):
                    torch.manual_seed(0)
                    leaves, given = given_of(programs.copies(self.inputs, dtype), self.kinds)
                    results = list(fn(*given))
                    followed = [t for t in results if t.requires_grad]
                    if not followed or sum(t.numel() for t in results) > 4096:
                        return False
                    gradients = torch.autograd.grad(sum(t.sum() for t in followed), leaves, allow_unused=True)
            except Exception:
                return False
            found.append([t.detach() for t in [*results, *gradients] if t is not None])
        return len(found[0]) == len(found[1]) and programs.well_conditioned(*found)


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
            with contextlib.nullcontext() if name == "twice" else torch.no_grad():
                self.note(where, getattr(self, name.replace(" ", "_"))(a, b))
        except (RuntimeError, IndexError) as error:
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
            return sum((t * (0.5 + 0.25 * i)).sum() for i, t in enumerate(chosen))

    def some(self, a):
        return [t for i, t in enumerate(self.leaves) if int(a * 8) >> i & 1] or self.leaves

    def backward(self, a, b):
        self.loss(a).backward(retain_graph=b < 0.5)

    def backward_of_some(self, a, b):
        self.loss(a).backward(retain_graph=b < 0.8, inputs=self.some(b))

    def grad(self, a, b):
        return torch.autograd.grad(self.loss(a), self.some(b), retain_graph=b < 0.8, allow_unused=True)

    def of_each(self, a, b):
        tangents = [torch.full_like(t, 0.5 + a) for t in self.results]
        return torch.autograd.grad(self.results, self.leaves, tangents, retain_graph=b < 0.8, allow_unused=True)

    def between_results(self, a, b):
        return torch.autograd.grad(self.loss(a), self.results[:1], retain_graph=True, allow_unused=True)

    def twice(self, a, b):
        first = torch.autograd.grad(self.loss(a), self.leaves, create_graph=True, allow_unused=True)
        again = [g.square().sum() for g in first if g is not None and g.requires_grad]
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
        self.results[at].register_hook(lambda g: self.hooked(f"hook of result {at}", g, 0.5 + b))

    def retain(self, a, b):
        self.results[int(a * len(self.results))].retain_grad()

    def call_again(self, a, b):
        with torch.enable_grad():
            self.results += [t for t in self.fn(*self.given) if t.requires_grad]

    def retained(self, a, b):
        return [t.grad for t in self.results if not t.is_leaf and t.retains_grad]

    def forget(self, a, b):
        for leaf in self.leaves:
            leaf.grad = None


AFTER = (
    "backward", "backward", "backward of some", "grad", "grad", "of each", "between results", "twice", "write result", "write part", "write leaf",
    "write detached", "hook", "retain", "call again", "forget",
)  # fmt: skip


def kind_of_error(error):
    for known in ("modified by an inplace operation", "second time", "does not require grad", "leaf Variable", "leaf variable",
                  "is a view", "already been freed", "element 0 of tensors"):  # fmt: skip
        if known in str(error):
            return f"raised: {known}"
    return f"raised: {str(error)[:80]}"
