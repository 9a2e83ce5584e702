# tests/training/test_passes_in_transforms.py
"""Backward passes over a compiled function's results within transforms of torch.func."""

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, vmap

import torchbolt

ROWS, ONES, TWO = torch.eye(6), torch.ones(6), torch.tensor(2.0)

# `one` gives what a pass makes of its tangents.
USES = {
    "plain": lambda one: one(ONES),
    "grad": lambda one: grad(lambda t: one(t).square().sum())(ONES),
    "jacrev": lambda one: jacrev(one)(ONES),
    "jacfwd": lambda one: jacfwd(one)(ONES),
    "vmap": lambda one: vmap(one)(ROWS),
    "vmap, two dimensions": lambda one: vmap(vmap(one))(ROWS.view(2, 3, 6)),
    "grad in vmap": lambda one: vmap(grad(lambda t: one(t).square().sum()))(ROWS),
    "vmap in grad": lambda one: grad(lambda t: vmap(one)(t).square().sum())(ROWS),
    "plain in grad": lambda one: grad(lambda s: (one(ONES) * s).square().sum())(TWO),
    "expanded in grad": lambda one: grad(lambda s: (one(TWO.expand(6)) * s).square().sum())(TWO),
    "plain vmap in grad": lambda one: grad(lambda s: (vmap(one)(ROWS) * s).square().sum())(TWO),
    "grad in grad": lambda one: grad(lambda s: grad(lambda t: one(t).square().sum() * s)(ONES * s).sum())(TWO),
}


def cube(x):
    return x.sin() * x**3


def first(fn, leaf):
    return fn(leaf)


def second(fn, leaf):
    return torch.autograd.grad(fn(leaf).sum(), leaf, create_graph=True)[0]


def third(fn, leaf):
    slopes = second(fn, leaf)
    return torch.autograd.grad(slopes, leaf, slopes.square() * leaf, create_graph=True)[0]


def of_two_results(fn, leaf):
    """One is made of the other, which formulas have saved."""
    inner, outer = fn(leaf)
    return torch.autograd.grad(outer.sum() + inner.square().sum(), leaf, create_graph=True)[0]


def gained(fn, leaf, uses, of, history):
    """What comes of passes over `of(fn, leaf)`, one use after another, and the gradients of that."""
    out = of(fn, leaf)

    def one(tangents):
        return torch.autograd.grad(out, leaf, tangents, create_graph=history, retain_graph=True)[0]

    seen = []
    for use in uses:
        found = USES[use](one)
        seen.append(found)
        if found.requires_grad:
            seen += torch.autograd.grad(found.square().sum(), leaf, retain_graph=True)
    return seen


def in_two(x):
    return (y := x.sigmoid()), (y * y).tanh() * x


def compare(uses, of, history, run=cube):
    fn = torchbolt.compile(run)
    for _ in range(3):
        x = torch.randn(6)
        got, want = (gained(f, x.clone().requires_grad_(), uses, of, history) for f in (fn, run))
        assert [g.requires_grad for g in got] == [w.requires_grad for w in want]
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("use", USES)
def test_passes_that_keep_no_history(use):
    compare([use], first, False)


@pytest.mark.parametrize("use", USES)
def test_one_transform_after_another(use):
    """They share the run that is made for gradients of gradients, and nothing of each other."""
    for other in USES:
        compare([use, other], first, True)


@pytest.mark.parametrize("of", [second, third])
@pytest.mark.parametrize("use", USES)
def test_passes_over_gradients_that_have_a_history(use, of):
    compare([use, "plain", use], of, True)


@pytest.mark.parametrize("use", USES)
def test_passes_over_gradients_of_two_results(use):
    compare([use, "plain"], of_two_results, True, in_two)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.topk(3).values,
        lambda x: x.mode(-1).values,
        lambda x: x.cummax(0).values,
        lambda x: x.index_put((torch.tensor([0]),), x[1:2] * 2),
        lambda x: torch.stack([x[:3].sin(), x[3:]]).median(0).values,
    ],
    ids=["topk", "mode", "cummax", "index_put", "median"],
)
@pytest.mark.parametrize("how", ["batched", "vmap"])
def test_gradients_that_are_written_into_zeros(fn, how):
    """ATen's formulas make zeros and write to them, which are of no batch."""
    fast = torchbolt.compile(fn)
    for _ in range(4):
        x = torch.randn(6, requires_grad=True)
        seen = []
        for run in (fast, fn):
            y = run(x)
            rows = torch.eye(y.numel()).view(-1, *y.shape)
            if how == "batched":
                (slopes,) = torch.autograd.grad(y, x, rows, is_grads_batched=True)
            else:
                slopes = vmap(lambda t, y=y: torch.autograd.grad(y, x, t, retain_graph=True)[0])(rows)
            seen.append(slopes)
        torch.testing.assert_close(*seen)
