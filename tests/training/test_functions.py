# tests/training/test_functions.py
"""torch.autograd.Function and operators with registered gradients: compiled with what stands around, and eager's results."""

import enum
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from leaves import leaf
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import torchbolt

SCALE = 3.0


def compare(fn, *args, calls=3, whole=True, twice=True):
    """Results, gradients and gradients of gradients are eager's; `whole`: in one compiled region."""
    fast = torchbolt.compile(fn)
    for _ in range(calls):
        seen = []
        for run in (fn, fast):
            at = [a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in args]
            leaves = [a for a in at if isinstance(a, torch.Tensor)]
            result = run(*at)
            firsts = torch.autograd.grad(result.square().sum(), leaves, create_graph=twice, allow_unused=True)
            seconds = ()
            if twice and any(g is not None and g.requires_grad for g in firsts):
                again = sum(g.square().sum() for g in firsts if g is not None)
                seconds = torch.autograd.grad(again, leaves, allow_unused=True)
            seen.append([result, *firsts, *seconds])
        for ours, eagers in zip(*seen, strict=True):
            assert (ours is None) == (eagers is None)
            if ours is not None:
                torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-4)
    stats = torchbolt.stats()
    if whole:
        assert (stats["regions"], stats["graph_breaks"], stats["eager_fallbacks"]) == (1, 0, 0)
    return stats


class Sine(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.sin() * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * ctx.scale, None


def test_one_region():
    compare(lambda x, w: F.gelu(Sine.apply(x @ w, 2.0)), leaf(4, 5), leaf(5, 3))


def test_a_number_is_a_fact():
    fast = torchbolt.compile(lambda x, k: Sine.apply(x, k).sum())
    for k in (2.0, 3.0, 2.0, 5.0, 7.0, 3.0):
        x = leaf(6)
        torch.testing.assert_close(torch.autograd.grad(fast(x, k), x), torch.autograd.grad(Sine.apply(x, k).sum(), x))


class Reversed(Function):
    """A gradient reversal layer, whose factor grows from step to step."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.state = {"factor": factor, "power": [2, factor * 2]}
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        state = ctx.state
        return -state["factor"] * g / state["power"][0] + g.clamp(max=state["power"][1]), None


@pytest.mark.parametrize("kind", [float, np.float64, np.float32], ids=lambda kind: kind.__name__)
def test_a_float_that_differs_is_data(kind):
    """numpy's, too: the rate of a gradient that is reversed is computed with np.exp in many a loop."""

    def fn(x, w, factor):
        return (Reversed.apply(x @ w, factor).tanh() * factor).sum()

    fast = torchbolt.compile(fn)
    for i in range(12):
        x, w = leaf(4, 5), leaf(5, 3)
        want = torch.autograd.grad(fn(x, w, kind(0.1 * i)), (x, w))
        torch.testing.assert_close(torch.autograd.grad(fast(x, w, kind(0.1 * i)), (x, w)), want)
    stats = torchbolt.stats()
    assert (stats["regions"], stats["eager_fallbacks"], stats["graph_breaks"]) == (2, 0, 0)


class Padded(Function):
    """Ints in its ctx that the backward pass cuts, shapes and multiplies with."""

    @staticmethod
    def forward(ctx, x, n, factor):
        ctx.n, ctx.state = n, [factor, x.shape]
        return torch.cat([x, x.new_ones(x.shape[0], n)], -1) * factor

    @staticmethod
    def backward(ctx, g):
        factor, sizes = ctx.state
        return (g[:, : g.shape[1] - ctx.n] * factor).reshape(sizes), None, None


@pytest.mark.parametrize("differ", ["n", "factor", "both", "sizes"])
def test_an_int_that_differs_is_followed(differ):
    def fn(x, w, n, factor):
        return (Padded.apply(x @ w, n, factor).tanh() * n).sum()

    fast = torchbolt.compile(fn)
    for i in range(12):
        n, factor = 2 + i if differ in ("n", "both") else 3, 2 + i * 3 % 8 if differ in ("factor", "both") else 4
        x, w = leaf(4 + i if differ == "sizes" else 4, 5), leaf(5, 3)
        want = torch.autograd.grad(fn(x, w, n, factor), (x, w))
        torch.testing.assert_close(torch.autograd.grad(fast(x, w, n, factor), (x, w)), want)
    stats = torchbolt.stats()
    assert (stats["regions"], stats["eager_fallbacks"]) == (2, 0)


class Curved(Function):
    """What the backward pass does with its number is no arithmetic on tensors."""

    @staticmethod
    def forward(ctx, x, power):
        ctx.power = power
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * (2.0 if ctx.power > 0.35 else math.exp(ctx.power)), None


def test_a_float_that_differs_and_is_looked_at():
    fast = torchbolt.compile(lambda x, power: Curved.apply(x.sin(), power).sum())
    for i in range(8):
        x = leaf(6)
        want = torch.autograd.grad(Curved.apply(x.sin(), 0.1 * i).sum(), x)
        torch.testing.assert_close(torch.autograd.grad(fast(x, 0.1 * i), x), want)


class Norm(Function):
    """In the newer form, with sizes, lists and dicts in its ctx and tensors among them."""

    @staticmethod
    def forward(x, weight, eps):
        scale = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        return x * scale * weight, scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, eps = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, weight)
        ctx.kept = {"scale": [output[1], eps], "sizes": x.shape}
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        x, weight = ctx.saved_tensors
        scale = ctx.kept["scale"][0]
        inner = (g * weight * x).mean(-1, keepdim=True) * scale.pow(3)
        gx = (g * weight * scale - x * inner).view(ctx.kept["sizes"])
        return gx, (g * x * scale).sum(0) if ctx.needs_input_grad[1] else None, None


def test_state_of_all_kinds():
    compare(lambda x, w: Norm.apply(x.tanh(), w, 1e-5)[0] * 2, leaf(4, 6), leaf(6), twice=False)


def test_once_differentiable_is_eagers_error():
    def penalty(x, w):
        return Norm.apply(x, w, 1e-5)[0].square().sum()

    for run in (penalty, torchbolt.compile(penalty)):
        x = leaf(4, 6)
        (g,) = torch.autograd.grad(run(x, torch.ones(6)), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.sum().backward()


class Straight(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-0.5, 0.5)


def test_in_a_loop_and_in_modules():
    def run(x, w):
        for i in range(3):
            x = Straight.apply(x @ w * (i + 1)) + Sine.apply(x, 0.5)
        return x

    compare(run, leaf(4, 4), leaf(4, 4), twice=False)


def helper(g, by):
    return g * by * SCALE


class Reads(Function):
    """A number of the module and a function of the user's."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return helper(g, 2)


def test_what_the_backward_pass_reads_is_guarded(monkeypatch):
    compare(lambda x: Reads.apply(x.sin()), leaf(5))
    fast = torchbolt.compile(lambda x: Reads.apply(x).sum())
    for scale in (1.0, 2.0, 1.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        x = leaf(3)
        (g,) = torch.autograd.grad(fast(x), x)
        assert g.tolist() == [2 * scale] * 3
    monkeypatch.setitem(globals(), "helper", lambda g, by: g * 100)
    x = leaf(3)
    (g,) = torch.autograd.grad(fast(x), x)
    assert g.tolist() == [100] * 3


CALLS = []


class Counts(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        CALLS.append(tuple(g.shape))
        return g * 2


def test_effects_of_the_backward_pass_happen_each_time():
    CALLS.clear()
    compare(lambda x: Counts.apply(x.sin()) + 1, leaf(5), whole=False, twice=False)
    assert len(CALLS) == 6


class Colour(enum.Enum):
    red = 1


class KeepsObjects(Function):
    @staticmethod
    def forward(ctx, x, colour, scales):
        ctx.colour, ctx.scales = colour, scales
        ctx.save_for_backward(x)
        return x.exp() * scales["a"]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp() * ctx.scales["a"] * ctx.colour.value, None, None


class Scales(dict):
    pass


def test_objects_in_the_ctx():
    compare(lambda x: KeepsObjects.apply(x.sin(), Colour.red, Scales(a=2.0)).cos(), leaf(5), whole=False)


class AddInPlace(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx, g):
        return g * 3, g * 5


def test_what_writes_to_its_inputs():
    def run(x, y):
        z = x * 2
        result = AddInPlace.apply(z, y)
        return result * z

    compare(run, leaf(4), leaf(4), whole=False)
    fast = torchbolt.compile(lambda x, y: AddInPlace.apply(x, y).sum())
    with pytest.raises(RuntimeError, match="leaf Variable"):
        fast(leaf(4), leaf(4))


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_what_gives_its_input_back():
    compare(lambda x: Same.apply(x.sin()) * 2 + x, leaf(5))
    compare(lambda x: Same.apply(x), leaf(5), whole=False)


class Wrong(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g


def test_a_wrong_number_of_gradients():
    fast = torchbolt.compile(lambda x, y: Wrong.apply(x, y).sum())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="incorrect number of gradients"):
            fast(leaf(3), leaf(3)).backward()


class Looks(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 if x.sum().item() > 0 else g * 3


def test_data_in_the_backward_pass():
    fast = torchbolt.compile(lambda x: Looks.apply(x.exp() * torch.sign(x)).sum())
    for sign in (1, -1, 1):
        x = (torch.rand(4) * sign).requires_grad_()
        want = torch.autograd.grad(Looks.apply(x.exp() * torch.sign(x)).sum(), x)
        torch.testing.assert_close(torch.autograd.grad(fast(x), x), want)


def test_transforms():
    fast = torchbolt.compile(lambda x: torch.func.grad(lambda t: Vmapped.apply(t).sum())(x))
    x = torch.randn(5)
    for _ in range(2):
        torch.testing.assert_close(fast(x), x.cos() * 2)


class Vmapped(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin() * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * 2


@torch.library.custom_op("bolt_functions::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x.sin() * by


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


def scaled_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * x.cos() * ctx.by, None


def scaled_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.by = inputs[1]


scaled.register_autograd(scaled_backward, setup_context=scaled_context)


def test_an_operator_with_registered_gradients():
    compare(lambda x, w: scaled(x @ w, 2.0).tanh(), leaf(4, 5), leaf(5, 3))


@torch.library.custom_op("bolt_functions::in_groups", mutates_args=())
def in_groups(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    out, begin = x.new_zeros(x.size(0), w.size(2)), 0
    for i, end in enumerate(ends.tolist()):
        out[begin:end] = x[begin:end] @ w[i]
        begin = end
    return out


@in_groups.register_fake
def _(x, w, ends):
    return x.new_empty(x.size(0), w.size(2))


def in_groups_backward(ctx, g):
    (x, w), begin = ctx.saved_tensors, 0
    gx, gw = torch.zeros_like(x), torch.zeros_like(w)
    for i, end in enumerate(ctx.ends.tolist()):
        gx[begin:end], gw[i] = g[begin:end] @ w[i].T, x[begin:end].T @ g[begin:end]
        begin = end
    return gx, gw, None


def in_groups_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.ends = inputs[2]


in_groups.register_autograd(in_groups_backward, setup_context=in_groups_context)


def test_an_operator_whose_gradient_looks_at_data(capfd):
    """The operator is eager's, and what is around it is compiled."""
    torchbolt.set_logs("perf_hints")
    try:
        ends = torch.tensor([3, 5, 8])
        compare(lambda x, w: in_groups((x * 2).sin(), w, ends).relu().exp(), leaf(8, 16), leaf(3, 16, 4), twice=False)
    finally:
        torchbolt.set_logs("")
    assert "bolt_functions::in_groups is left to eager, because tolist()" in capfd.readouterr().err


def test_sizes_that_differ():
    fast = torchbolt.compile(lambda x, w: Sine.apply(x @ w, 2.0).sum(), dynamic=None)
    for rows in (4, 5, 6, 4, 9):
        x, w = leaf(rows, 5), leaf(5, 3)
        want = torch.autograd.grad(Sine.apply(x @ w, 2.0).sum(), (x, w))
        torch.testing.assert_close(torch.autograd.grad(fast(x, w), (x, w)), want)


class Keeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(5, 5))

    def forward(self, x):
        return Norm.apply(x @ self.weight, x.mean(0), 1e-3)[0] * Sine.apply(self.weight.mean(), 1.0)


def test_a_training_loop():
    def losses(compiled):
        torch.manual_seed(0)
        model = Keeps()
        fast, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            loss = fast(torch.randn(4, 5)).square().mean()
            loss.backward()
            optimizer.step()
            yield loss.detach()

    torch.testing.assert_close(list(losses(torchbolt.compile)), list(losses(lambda m: m)), rtol=1e-3, atol=1e-4)
