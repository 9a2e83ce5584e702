# tests/training/test_gradients_of_gradients.py
"""Gradients of gradients of what a compiled function gives: the run is made again from what it was given."""

import copy

import pytest
import torch
import torch.nn.functional as F
from leaves import compiled_whole, leaf, mlp, operands
from torch import nn

import torchbolt


def test_gradients_of_gradients():
    fast, check = compiled_whole(mlp)
    at = operands(torch.float64)

    def penalty(fn):
        out = fn(*at)
        (g,) = torch.autograd.grad(out.sum(), at[0], create_graph=True)
        return torch.autograd.grad((g.pow(2).sum() + out.sum()), at)

    torch.testing.assert_close(penalty(fast), penalty(mlp))
    assert torch.autograd.gradcheck(fast, at)
    assert torch.autograd.gradgradcheck(fast, at)
    check()


def test_gradients_of_gradients_with_chains_and_draws():
    """One input is made of the other, and what is dropped is the same in the second run."""

    def fn(x, y):
        return F.dropout(x.sin() * y, 0.5)

    fast, check = compiled_whole(fn)

    def twice(fn):
        torch.manual_seed(5)
        x = torch.linspace(0, 1, 20, dtype=torch.float64, requires_grad=True)
        out = fn(x, x.exp())
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out, g, torch.autograd.grad(g.pow(2).sum(), x)[0], torch.rand(2)

    for _ in range(2):
        torch.testing.assert_close(twice(fast), twice(fn))
    check()


def test_what_was_not_kept_is_kept_from_then_on():
    def fn(x, big):
        return (x * big.sum()).sin()

    def penalty(out):
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)

    fast = torchbolt.compile(fn)
    big = torch.randn(1000)
    x = leaf(3)
    for _ in range(2):  # recorded, then compiled
        fast(x, big).sum().backward()
    out = fast(x, big.clone())
    with pytest.raises(RuntimeError, match="run this step again"):
        penalty(out)
    torch.testing.assert_close(penalty(fast(x, big.clone())), penalty(fn(x, big)))


def test_what_was_not_kept_but_is_still_there():
    def fn(x, big):
        return (x * big.sum()).sin()

    fast, check = compiled_whole(fn)
    big = torch.randn(1000)
    x = leaf(3)
    for _ in range(2):
        fast(x, big).sum().backward()
    seen = []
    for run in (fn, fast):
        y = x * 2
        out = run(y, big)
        y.detach_()  # what was made of it has its history all the same
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        seen.append((g, torch.autograd.grad(g.sum(), x)))
    torch.testing.assert_close(seen[1], seen[0])
    check()


def test_what_was_not_kept_and_is_there_but_otherwise():
    fast, check = compiled_whole(lambda x, big: (x * big.sum()).sin())
    big = torch.randn(1000)
    x = leaf(3)
    for _ in range(2):
        fast(x, big).sum().backward()
    out = fast(x, big)
    big.add_(1)
    with pytest.raises(RuntimeError, match="run this step again"):
        torch.autograd.grad(out.sum(), x, create_graph=True)
    check()


def test_what_passes_over_the_recorded_run_asked_for():
    """They come to eager's nodes."""

    def fn(x, big):
        return (x * big.sum()).sin()

    fast, check = compiled_whole(fn)
    x = leaf(3)
    for call in range(4):
        out = fast(x, torch.full((1000,), 0.5))
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=call != 1)
        if call != 1:
            torch.testing.assert_close(torch.autograd.grad(g.sum(), x), (-out.detach() * 500**2,))
    check()


def test_jacobians_and_vmap_of_the_backward_pass():
    fast, _ = compiled_whole(mlp)
    at = operands()
    for options in ({}, {"vectorize": True}):
        got = torch.autograd.functional.jacobian(fast, at, **options)
        torch.testing.assert_close(got, torch.autograd.functional.jacobian(mlp, at, **options))


def test_gradients_of_gradients_of_a_view_made_within_an_operator():
    """tensorsolve gives its solution reshaped: the node has a gradient for what it was before."""
    a = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    b = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(torchbolt.compile(torch.linalg.tensorsolve), (a, b))


def test_gradients_of_gradients_of_a_turned_view_made_within_an_operator_are_refused():
    fn = torchbolt.compile(lambda x: torch.linalg.tensorinv(x, ind=1))
    for call in range(3):  # the first pass is that of the recorded run
        x = leaf(4, 2, 2)
        if call > 0:
            with pytest.raises(NotImplementedError, match="a part of what an operator made within"):
                torch.autograd.grad(fn(x).square().sum(), x, create_graph=True)
        fn(x).square().sum().backward()


def test_gradients_of_gradients_after_later_forward_passes():
    """What a normalisation only counts is not held as saved."""

    def run(call, model):
        x = [torch.linspace(-1, 1, 30, dtype=torch.float64).view(5, 6).mul(i + 1).requires_grad_() for i in range(2)]
        results = [call(t**3) for t in x]
        firsts = [torch.autograd.grad(y.square().sum(), t, create_graph=True)[0] for y, t in zip(results, x)]
        seconds = [torch.autograd.grad(g.square().sum(), t)[0] for g, t in zip(firsts, x)]
        return [*firsts, *seconds, *(b.clone() for b in model.buffers())]

    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh()).double()
    ours = copy.deepcopy(eager)
    compiled = torchbolt.compile(ours)
    for _ in range(3):
        for want, got in zip(run(eager, eager), run(compiled, ours), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_gradients_of_gradients_where_something_was_written_to_that_others_are_made_of():
    """The run is made again as a whole, with one input that is not as it was: who needs that one may not have it."""

    def fn(a, b, c):
        return torch.logaddexp(a, b), a.exp() * c.sin()

    def twice(result, *leaves):
        first = torch.autograd.grad(result.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    fast, check = compiled_whole(fn)
    for _ in range(3):
        a, b, c = (leaf(4) for _ in range(3))
        eagers, ours = fn(a, b, c), fast(a, b, c)
        with torch.no_grad():
            c.add_(1)
        torch.testing.assert_close(twice(ours[0], a, b), twice(eagers[0], a, b))
        for results in (eagers, ours):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                twice(results[1], a, c)
    check()


def test_gradients_of_gradients_where_something_was_written_to_that_no_gradient_reads():
    """A product with what is detached reads that, and not the other factor."""

    def fn(a, b):
        total = b.sum()
        return a.exp() + a.detach() * total, total

    fast = torchbolt.compile(fn)
    for _ in range(3):
        found = []
        for run in (fn, fast):
            a, b = (torch.linspace(0, 1, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
            result, total = run(a, b)
            total.detach().mul_(2)
            first = torch.autograd.grad(result.square().sum() * 0.5 + result.sum(), (a, b), create_graph=True)
            found.append((*first, *torch.autograd.grad(sum(g.square().sum() for g in first), (a, b))))
        torch.testing.assert_close(found[1], found[0])
