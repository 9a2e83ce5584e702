# tests/autograd/test_function.py
"""torch.autograd.Function on a joint tape: its backward pass is recorded with the rest."""

import pytest
import torch
from test_joint import check, leaf, refused
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from torchbolt.stand_ins.functions import apply_openly


def openly(run, *functions):
    """The program with the functions' forward passes in the open."""

    def opened(*args):
        natives = [vars(f).get("apply") for f in functions]
        for f in functions:
            f.apply = classmethod(apply_openly)
        try:
            return run(*args)
        finally:
            for f, native in zip(functions, natives, strict=True):
                delattr(f, "apply") if native is None else setattr(f, "apply", native)

    return opened


def compare(run, *args, functions, **more):
    """Openly and in eager, which agree; gives the joint tape's text."""
    expected = run(*args)
    found = openly(run, *functions)(*args)
    pairs = zip(
        [found] if isinstance(found, torch.Tensor) else found,
        [expected] if isinstance(expected, torch.Tensor) else expected,
        strict=True,
    )
    for a, b in pairs:
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad
        if not b.requires_grad:
            continue
        wanted = [t for t in args if isinstance(t, torch.Tensor) and t.requires_grad]
        gradients = (torch.autograd.grad(o.sum(), wanted, retain_graph=True, allow_unused=True) for o in (a, b))
        assert all(x is y or torch.equal(x, y) for x, y in zip(*gradients, strict=True))
    return check(openly(run, *functions), *args, **more)


class Sine(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.sin() * scale

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * ctx.scale, None


def test_saved_tensors_and_numbers():
    text = compare(lambda x: Sine.apply(x * 2, 3.0).exp(), leaf(3, 4), functions=[Sine])
    assert text.index("backward:") < text.index("aten::cos") and "torchbolt::function" not in text


class Split(Function):
    """Two results, one of them without a gradient, of a saved output and a tensor in an attribute."""

    @staticmethod
    def forward(x, y):
        return x.exp(), (x * y).argmax(1), y * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        exponential, places, _ = output
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(exponential, None, places)
        ctx.other = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, of_exponential, of_places, of_double):
        exponential, nothing, places = ctx.saved_tensors
        assert nothing is None and not places.is_floating_point()
        return of_exponential * exponential + ctx.other, of_double * 2 if ctx.needs_input_grad[1] else None


def test_several_results_and_setup_context():
    compare(lambda x, y: Split.apply(x * 1, y), leaf(3, 4), leaf(3, 4), functions=[Split])
    compare(lambda x, y: Split.apply(x, y)[0].sum(), leaf(3, 4), torch.randn(3, 4), functions=[Split])
    compare(lambda x, y: Split.apply(x, y)[2] * x, leaf(3, 4), leaf(3, 4), functions=[Split])


class Sparing(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 if b is None else b * 3


def test_gradients_that_do_not_come():
    compare(lambda x: Sparing.apply(x)[1] * 2, leaf(3), functions=[Sparing])
    compare(lambda x: Sparing.apply(x)[0] * 2, leaf(3), functions=[Sparing])


class Straight(Function):
    """A straight-through estimator, whose gradient is clipped by a loop over pieces."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        pieces = [p.clamp(-0.5, 0.5) for p in gradient.unbind(0)]
        return torch.stack(pieces) if gradient.dim() > 1 else gradient


def test_functions_of_functions():
    w = leaf(4, 4)

    def run(x):
        for _ in range(2):
            x = F.gelu(Straight.apply(Sine.apply(x @ w, 0.5)))
        return x

    text = compare(run, leaf(3, 4), functions=[Sine, Straight], state=[w])
    assert text.count("aten::clamp") == 6


def test_what_is_saved_counts_writes():
    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0]

    refused(
        openly(lambda x: Exponential.apply(x).mul_(2), Exponential), leaf(3), match="modified by an inplace operation"
    )


def test_data_in_a_backward_pass():
    class Choosing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2 if gradient.sum() > 0 else gradient

    refused(openly(lambda x: Choosing.apply(x), Choosing), leaf(3), match="aten::(is_nonzero|_local_scalar_dense)")


def test_a_wrong_number_of_gradients():
    class Short(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    refused(openly(lambda x, y: Short.apply(x, y), Short), leaf(3), leaf(3), match="incorrect number of gradients")


def test_writing_to_inputs():
    class Writing(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    x = leaf(3)
    y = x * 1
    assert apply_openly(Writing, y) is y
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        apply_openly(Writing, leaf(3))


def test_in_eager_it_is_a_node_like_any_other():
    x = leaf(3)
    y = apply_openly(Sine, x, 2.0)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(first, x.cos() * 2) and torch.equal(second, -x.sin() * 2)
    y = apply_openly(Sine, x, 2.0).sum()
    y.backward()
    assert torch.equal(x.grad, x.cos() * 2)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    assert not apply_openly(Sine, x.detach(), 2.0).requires_grad
    with torch.no_grad():
        assert not apply_openly(Sine, x, 2.0).requires_grad
