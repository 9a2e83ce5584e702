# tests/observe/test_gradient_guards.py
"""A program that reads .grad: another gradient of the same kind is no other program, and no slow check either."""

import weakref

import pytest
import torch
from helper import Seen
from torch import nn

import torchbolt
from torchbolt import _C

STEPS = 5


class Model(nn.Module):
    def __init__(self, count=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))
        self.rate = 0.1

    def largest(self):
        return torch.stack([p.grad.abs().max() for p in self.parameters()]).max() * self.rate


def with_gradients(count=3):
    model = Model(count)
    give(model)
    return model


def give(model, value=1.0):
    for p in model.parameters():
        p.grad = torch.full_like(p, value)


def largest(model):
    return model.largest()


def walks(seen):
    return _C._observe_walks(seen.observation)


@torch.no_grad()
def seen_of(model):
    return Seen(largest, model).sound()


@torch.no_grad()
def holds(seen, *args):
    return seen.holds(*args)


def test_unchanged_gradients_are_compared_fast():
    model = with_gradients()
    seen = seen_of(model)
    assert holds(seen, model)
    before = walks(seen)
    assert all(holds(seen, model) for _ in range(STEPS))
    assert walks(seen) == before


def test_new_gradients_are_compared_fast():
    model = with_gradients()
    seen = seen_of(model)
    assert holds(seen, model)
    before = walks(seen)
    for step in range(STEPS):
        give(model, step)
        assert holds(seen, model)
    assert walks(seen) == before
    model.rate = 0.2  # not by these words
    assert not holds(seen, model)
    assert walks(seen) > before


def test_gradients_are_not_kept():
    model = with_gradients(1)
    seen = seen_of(model)
    assert holds(seen, model)
    weight = model.layers[0].weight
    held = weakref.ref(weight.grad)
    weight.grad = None
    assert held() is None
    assert not holds(seen, model)


@pytest.mark.parametrize(
    "other",
    [
        None,
        lambda p: torch.ones(4, 4).t().contiguous().t(),
        lambda p: torch.ones(4, 4).to_sparse(),
        lambda p: nn.Parameter(torch.ones(4, 4)),
    ],
    ids=["none", "strides", "sparse", "class"],
)
def test_gradients_of_another_kind_are_seen(other):
    model = with_gradients()
    seen = seen_of(model)
    assert holds(seen, model)
    p = model.layers[1].weight
    p.grad = other(p) if other else None
    assert not holds(seen, model)
    p.grad = torch.ones(4, 4)
    assert holds(seen, model)


def test_one_gradient_for_two_parameters_is_seen():
    @torch.no_grad()
    def fn(a, b):
        return a.grad * (2 if a.grad is b.grad else 3)

    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    a.grad, b.grad = torch.ones(3), torch.ones(3)
    seen = Seen(fn, a, b).sound()
    a.grad, b.grad = torch.ones(3), torch.ones(3)
    assert seen.holds(a, b)
    a.grad = b.grad
    assert not seen.holds(a, b)
    b.grad = torch.ones(3)
    assert seen.holds(a, b)


def test_what_a_gradient_was_given_is_seen():
    model = with_gradients()
    seen = seen_of(model)
    grad = model.layers[0].weight.grad
    assert holds(seen, model)
    grad.unused = 1
    assert holds(seen, model)
    grad.abs = lambda: torch.zeros(4, 4)
    assert not holds(seen, model)
    del grad.abs
    assert holds(seen, model)


def test_none_that_was_read_is_seen():
    def fn(x, p):
        return x * (2 if p.grad is None else 3)

    x, p = torch.ones(3), torch.ones(3, requires_grad=True)
    seen = Seen(fn, x, p).sound()
    assert seen.holds(x, p)
    p.grad = torch.ones(3)
    assert not seen.holds(x, p)
    p.grad = None
    assert seen.holds(x, p)


def test_one_program_for_all_gradients():
    torchbolt.reset()
    model = with_gradients()
    compiled = torchbolt.compile(largest)
    with torch.no_grad():
        compiled(model)
        before = torchbolt.stats()["recordings"]
        for step in range(STEPS):
            give(model, step)
            assert compiled(model).item() == pytest.approx(step * model.rate)
        assert torchbolt.stats()["recordings"] == before
        for p in model.parameters():
            p.grad = p.grad.t().contiguous().t() if p.dim() == 2 else p.grad
        assert compiled(model).item() == pytest.approx((STEPS - 1) * model.rate)


def test_gradients_of_backward():
    """As a loop trains: cleared, computed, read."""
    torchbolt.reset()
    model = Model(2)

    @torch.no_grad()
    def step(model):
        for p in model.parameters():
            p.sub_(p.grad * 0.1)

    compiled = torchbolt.compile(step)
    twin = Model(2)
    twin.load_state_dict(model.state_dict())
    before = None
    for i in range(STEPS):
        for each, update in ((model, compiled), (twin, step)):
            each.zero_grad()
            x = torch.full((2, 4), 0.5)
            for layer in each.layers:
                x = layer(x)
            x.square().sum().backward()
            update(each)
        if i == 1:
            before = torchbolt.stats()["recordings"]
    assert torchbolt.stats()["recordings"] == before
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(p, q)
