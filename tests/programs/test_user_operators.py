# tests/programs/test_user_operators.py
"""Operators of users: torch.library.custom_op, torch.library.Library, torch.autograd.Function, torch.ops."""

import numpy
import pytest
import torch
from rows import Lazy, Rows, ints, positive, randn

import torchbolt

ROWS = Rows()


@torch.library.custom_op("rows::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numpy.sin(x.numpy()))


@sine.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("rows::scale", mutates_args=())
def scale(x: torch.Tensor, by: float, times: int = 1, name: str = "a") -> torch.Tensor:
    return x * by**times


@torch.library.custom_op("rows::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[: len(x) // 2].clone(), x[len(x) // 2 :].clone()


@torch.library.custom_op("rows::add_one_", mutates_args={"x"})
def add_one_(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("rows::total", mutates_args=())
def total(xs: list[torch.Tensor], weights: list[float], bias: torch.Tensor | None = None) -> torch.Tensor:
    out = sum(x * w for x, w in zip(xs, weights))
    return out if bias is None else out + bias


@torch.library.custom_op("rows::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


square.register_autograd(
    lambda ctx, g: 2 * g * ctx.x, setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0])
)


@torch.library.custom_op("rows::count", mutates_args=())
def count(x: torch.Tensor) -> int:
    return int((x > 0).sum())


@torch.library.custom_op("rows::positive", mutates_args=())
def positive_(x: torch.Tensor) -> bool:
    return bool(x[0] > 0)


@torch.library.custom_op("rows::precise", mutates_args=())
def precise(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x[0] > 0 else x.clone()


@torch.library.custom_op("rows::some", mutates_args=())
def some(x: torch.Tensor) -> torch.Tensor:
    return x[:2].clone() if x[0] > 0 else x.clone()


@torch.library.custom_op("rows::parts", mutates_args=())
def parts(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.clone()] if x[0] > 0 else [x + 1, x.clone()]


LIBRARY = torch.library.Library("rows_lib", "DEF")
LIBRARY.define("shift(Tensor x, float by) -> Tensor")
LIBRARY.impl("shift", lambda x, by: x + by, "CompositeExplicitAutograd")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")

MORE = dict(sine=sine, scale=scale, halves=halves, total=total, square=square)
for text in (
    "sine(x)",
    "sine(x * 2) + 1",
    "sine(sine(x).relu()).sum(-1)",
    "torch.ops.rows.sine(x)",
    "torch.ops.rows.sine.default(x) * 2",
    "scale(x, 2.0)",
    "scale(x, 0.5, 3) + scale(x, by=2.0, times=2, name='b')",
    "halves(x)[0] + halves(x)[1]",
    "total([x, x + 1], [1.0, 2.0])",
    "total([x, x + 1], [1.0, 2.0], x.mean())",
    "square(x).mean()",
    "torch.ops.rows_lib.shift(x, 1.5).exp()",
    "torch.ops.rows_lib.twice(x) + 1",
    "torch.ops.aten.add.Tensor(x, x, alpha=2)",
    "torch.ops.aten.add(x, 2)",
    "torch.ops.aten.native_layer_norm(x, [4], None, None, 1e-5)",
    "torch.ops.aten._softmax.default(x, -1, False)",
    "torch.ops.prims.convert_element_type.default(x, torch.float64)",
    "torch.ops.aten.split_with_sizes.default(x, [1, 3], 1)",
    "torch._foreach_add([x, x * 2], 1.0)",
    "torch._foreach_mul([x, x + 1], [x, x])",
    "torch._VF.dropout(x, 0.5, False)",
    "torch._C._nn.gelu(x)",
):
    ROWS.text(text, x=randn(4, 4), more=MORE)


# -- What they give is data --------------------------------------------------------------------------------------------
for name, fn, expect, regions in (
    ("a number", lambda x: (x * count(x), count(x)), ("MISS", "MISS", "HIT", "HIT"), 2),
    ("a flag", lambda x: x + 1 if positive_(x * 2) else x - 1, ("MISS", "HIT", "MISS", "HIT"), 3),
):
    for grad in (False, True):
        calls = [Lazy(lambda s=s, grad=grad: (torch.arange(3.0) + s).requires_grad_(grad)) for s in (-5, -1, 2)]
        facts = {"calls": tuple((x,) for x in calls), "expect": expect, "ends": "rows::", "regions": regions}
        ROWS.add(f"an operator that gives {name}, {grad=}", lambda fn=fn: fn, (), {**facts, "grad": grad})


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("signs", [(-1, -1, 1, -1, 1), (1, 1, -1, 1, -1)])
@pytest.mark.parametrize("operator", [precise, some, parts])
def test_operators_that_give_other_tensors(operator, signs, grad):
    def program(x):
        out = operator(x)
        if isinstance(out, list):
            return out[-1] * len(out)
        return out * 2 + out.shape[0]

    compiled = torchbolt.compile(program)
    for sign in signs:
        x = (sign * (torch.arange(3.0) + 1)).requires_grad_(grad)
        got, want = compiled(x), program(x)
        assert torch.equal(got, want) and got.dtype == want.dtype


@ROWS(randn(4), ends="aten::item", regions=2)
def a_number_by_its_operator(x):
    return x * torch.ops.aten.item(x[0])


@torch.library.custom_op("rows::two", mutates_args={"a", "b"})
def two(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    a.add_(x)
    b.mul_(2)


OVERLAPS = "an operator that is given memory twice and writes it"


@ROWS(randn(4), randn(4, seed=1), replays=OVERLAPS)
def operator_that_writes_overlapping_windows(x, o):
    two(x, o, o[:2].view(2)) if len(x) < 4 else two(x[:2], o[:2], o[1:3])
    return o * 2


@ROWS(randn(4), replays=OVERLAPS)
def operator_that_writes_what_it_reads(x):
    two(x[:2], x[:2], x[2:])
    return x * 2


@ROWS(randn(4), randn(6, seed=1))
def operator_that_writes_apart(x, o):
    y = o * 2
    two(x[:2], y[:2], y[4:])
    return y


@ROWS(randn(4))
def operator_that_writes(x):
    y = x * 2
    add_one_(y)
    return y * 3


@ROWS(randn(4))
def operator_that_writes_an_argument(x):
    add_one_(x)
    return x * 3


@ROWS(randn(4, requires_grad=True), grad=True)
def operator_with_gradients(x):
    return square(x.sin()).sum()


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Clip(torch.autograd.Function):
    """The newer form, with constants, and an output for which there is no gradient."""

    @staticmethod
    def forward(x, low, high):
        return x.clamp(low, high), (x < low) | (x > high)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.low, ctx.high = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g, _):
        (x,) = ctx.saved_tensors
        return g * ((x >= ctx.low) & (x <= ctx.high)), None, None


class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, g):
        return g


class Straight(torch.autograd.Function):
    """A straight-through estimator: returns what it is given, changed in the backward pass only."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Doubled(Exp):
    @staticmethod
    def forward(ctx, x, factor=2):
        return Exp.forward(ctx, x) * factor


FUNCTIONS = dict(Exp=Exp, Clip=Clip, AddInPlace=AddInPlace, Straight=Straight, Doubled=Doubled)
for text in (
    "Exp.apply(x)",
    "Exp.apply(x * 2).sum(-1) + 1",
    "Exp.apply(Exp.apply(x).neg())",
    "Clip.apply(x, -0.5, 0.5)",
    "Clip.apply(x + 1, -0.5, 0.5)[0] * 2",
    "AddInPlace.apply(x.clone()) * 2",
    "AddInPlace.apply(x) * 2",
    "Straight.apply(x)",
    "Straight.apply(x) + Straight.apply(x * 2)",
    "Doubled.apply(x)",
    "[Exp.apply(t) for t in x.unbind(0)]",
    "(lambda f: f(x))(Exp.apply)",
):
    ROWS.text(text, name=f"{text} (inference)", x=randn(4, 4), more=FUNCTIONS)
for text in (
    "Exp.apply(x * 2).sum()",
    "Clip.apply(x * 1, -0.5, 0.5)[0].sum()",
    "Straight.apply(x * 3).sum() + 1",
):
    ROWS.text(
        text,
        name=f"{text} (gradients)",
        x=randn(4, 4, requires_grad=True),
        more=FUNCTIONS,
        grad=True,
    )


class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k if ctx.needs_input_grad[0] else x + k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


@ROWS(randn(4))
def function_that_is_told_what_needs_gradients(x):
    return Asks.apply(x, 2)


@ROWS(positive(4), ints(4, below=4))
def the_functions_of_a_library(x, i):
    return torch.special.expit(x), torch.special.gammaln(x), torch.linalg.norm(x), torch.fft.rfft(x).abs(), x[i]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_user_operators(row):
    row.check()
