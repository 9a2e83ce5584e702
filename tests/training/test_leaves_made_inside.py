# tests/training/test_leaves_made_inside.py
"""Leaves that a compiled function makes itself, whose gradients are taken inside or outside."""

import pytest
import torch
from leaves import compiled_whole, leaf
from torch import nn

import torchbolt


def test_a_leaf_made_inside_that_nobody_sees():
    """Some models do so to their inputs, for the sake of checkpoints."""

    def fn(x, w):
        h = x[None]
        h.requires_grad = True
        return (h @ w).tanh()

    fast, check = compiled_whole(fn)
    for _ in range(3):
        x, w = torch.randn(4, 5), leaf(5, 3)
        (want,) = torch.autograd.grad(fn(x, w).sum(), w)
        torch.testing.assert_close(torch.autograd.grad(fast(x, w).sum(), w), (want,))
        assert not x.requires_grad
    check()


@pytest.mark.parametrize("show", [lambda h: h, lambda h: h[0]], ids=["itself", "a view"])
def test_a_leaf_made_inside_that_is_handed_out(show):
    def fn(x, w):
        h = x * 2
        h.requires_grad_()
        return (h @ w).tanh(), show(h)

    fast = torchbolt.compile(fn)
    for _ in range(3):
        x, w = torch.randn(4, 5), leaf(5, 3)
        gradients = []
        for call in (fn, fast):
            result, shown = call(x, w)
            at = shown if shown.is_leaf else shown._base
            (result.sum() + shown.sum()).backward(inputs=[at, w])
            gradients.append([at.grad, w.grad])
            w.grad = None
        torch.testing.assert_close(*gradients)


def test_a_penalty_on_the_gradient_of_a_leaf_made_inside():
    def penalty(real, fake, w, v):
        mixed = torch.lerp(real, fake, 0.25).requires_grad_()
        score = torch.tanh(mixed @ w) @ v
        (grad,) = torch.autograd.grad(score.sum(), mixed, create_graph=True)
        return (grad.norm(2, dim=1) - 1).square().mean() + score.mean()

    fast = torchbolt.compile(penalty)
    for _ in range(4):
        real, fake = torch.randn(4, 5), torch.randn(4, 5)
        leaves = leaf(5, 6), leaf(6, 1)
        want = torch.autograd.grad(penalty(real, fake, *leaves), leaves)
        torch.testing.assert_close(torch.autograd.grad(fast(real, fake, *leaves), leaves), want)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_an_attack_on_a_leaf_made_inside():
    def attacked(x, w):
        delta = torch.zeros_like(x).requires_grad_()
        loss = ((x + delta) @ w).square().mean()
        loss.backward(inputs=[delta])
        x = x + 0.1 * delta.grad.sign()
        return (x @ w).square().mean()

    fast = torchbolt.compile(attacked)
    for _ in range(4):
        x, w = torch.randn(4, 5), leaf(5, 3)
        want = torch.autograd.grad(attacked(x, w), w)
        torch.testing.assert_close(torch.autograd.grad(fast(x, w), w), want)


def test_results_of_leaves_of_its_own_alone():
    """Their history leads nowhere, but they have one, as in eager."""

    def module(x, n):
        return nn.Linear(3, 2)(x) * n

    compiled = torchbolt.compile(module)
    for n in range(1, 4):
        x = torch.randn(3)
        torch.manual_seed(n)
        want = module(x, n)
        torch.manual_seed(n)
        got = compiled(x, n)
        torch.testing.assert_close(got, want)
        assert got.requires_grad and got.grad_fn is not None
        got.sum().backward()


def beside_a_leaf(x, d, w):
    return (d * w).sin().sum() + (x * x).sum(), x.sum()


def with_a_leaf(x, d, w):
    return (x.detach().requires_grad_() * w).sin().sum(), x.square().sum()


@pytest.mark.parametrize("given", [lambda x: x * 1, lambda x: x[:1].expand(4, 5)], ids=["itself", "expanded"])
@pytest.mark.parametrize("fn", [beside_a_leaf, with_a_leaf])
def test_a_leaf_on_the_memory_of_an_argument(fn, given):
    """Made inside or outside, its gradient is its own, and the argument's history is the argument's."""
    fast, check = compiled_whole(fn)
    for _ in range(4):
        x, w = leaf(4, 5), torch.randn(4, 5)
        seen = []
        for run in (fn, fast):
            shown = given(x)
            d = shown.detach().requires_grad_()
            places = (x, d) if fn is beside_a_leaf else (x,)
            results = run(shown, d, w)
            seen.append([torch.autograd.grad(r, places, allow_unused=True, retain_graph=True) for r in results])
        torch.testing.assert_close(*seen)
    check()
