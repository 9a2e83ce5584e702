# tests/programs/test_given_data.py
"""tensor.data = other: parameters that are given other memory, within a region and for those that follow."""

import pytest
import torch
from rows import HIT, MISS, Lazy, Rows, randn
from torch import nn

import torchbolt

ROWS = Rows()


def param(*sizes, seed=1):
    return Lazy(lambda: nn.Parameter(randn(*sizes, seed=seed).make()))


@ROWS(param(3), randn(3))
def computed(p, x):
    p.data = p.data * 0.9 + x


@ROWS(param(3), randn(3))
def shared(p, x):
    p.data = x
    p.add_(1)
    return p * 2


@ROWS(param(3), param(3, seed=2))
def swapped(p, q):
    p.data, q.data = q.data, p.data
    return p + 1


@ROWS(param(2, 2), param(3))
def flattened(p, q):
    """What both show is part of one memory."""
    flat = torch.cat([p.data.view(-1), q.data])
    p.data, q.data = flat[:4].view(2, 2), flat[4:]
    return flat


@ROWS(param(4), randn(4))
def what_it_was(p, x):
    old, part = p.data, p.detach()[1:]
    p.data = x * 2
    part.mul_(3)
    old[0] = 7
    return p + old, part


@ROWS(param(2), randn(2))
def again_and_again(p, x):
    for i in range(3):
        p.data = p.data + i
        p.data += x
    return p.sum()


@ROWS(randn(3, 3), randn(2, 4))
def other_sizes(p, x):
    p.data = x.t()
    return p.shape, p @ x, p.stride()


@ROWS.made(randn(4, 3))
def statistics():
    def program(x):
        norm.running_mean.data = x.mean(0)
        return norm(x), norm.running_mean

    norm = nn.BatchNorm1d(3).eval()
    return program


@ROWS(
    calls=((randn(2), param(2), param(2, seed=2)), (randn(2, seed=3), param(2), param(2, seed=2))),
    expect=(MISS, HIT, HIT, HIT),
)
def of_several(x, *params):
    for p in params:
        p.data = x + p.data
    return [p * 2 for p in params]


@ROWS(param(3), randn(3), grad=True, ends="given other data, with gradients")
def then_differentiated(p, x):
    p.data = x * 2
    return p * x


@ROWS(param(3), randn(3), grad=True)
def differentiated_before(p, x):
    y = p * x
    p.data = x * 2
    return y


@ROWS(param(2), regions=2, ends="attribute 'data' of a Parameter is set")
def shown_before(p):
    print(p)
    p.data = p.data.round()
    return p + 1


@ROWS(param(2), regions=2, ends="print")
def shown_afterwards(p):
    p.data = p.data.round()
    print(p)
    return p + 1


@ROWS(param(2), randn(4))
def a_gradient_that_fits_them(p, x):
    p.data = x * 2
    p.grad = x + 1
    return p.grad * 3


@ROWS(param(2), randn(4))
def gradients_between(p, x):
    p.grad = x[:2] * 5
    p.data = x * 2
    p.grad = x + 1
    p.data = x[1:3] * 2


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_given_data(row):
    row.check()


def test_one_that_is_another_in_a_later_call():
    def program(p, q, x):
        p.data = x * 2
        return q.data + 1

    compiled = torchbolt.compile(program)
    for same in (False, False, True, False, True):
        p, x = nn.Parameter(torch.zeros(2)), torch.randn(2)
        q = p if same else nn.Parameter(torch.ones(2))
        assert torch.equal(compiled(p, q, x), x * 2 + 1 if same else torch.full((2,), 2.0))
        assert torch.equal(p.data, x * 2)


def test_sizes_that_differ():
    def program(p, x):
        p.data = x @ x.t()
        return p.shape[0] * p.sum()

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    with torch.no_grad():
        for n in (3, 4, 5, 6, 7):
            p, x = torch.zeros(1, 1), torch.randn(n, 2)
            torch.testing.assert_close(compiled(p, x), n * (x @ x.t()).sum())
            torch.testing.assert_close(p, x @ x.t())
    assert torchbolt.stats()["recordings"] == 2


def test_a_region_that_fails_leaves_it_as_it_was():
    def program(p, x):
        p.data = x
        p.grad = x
        torchbolt.graph_break()
        return p + 1

    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.ones(2)
    with pytest.raises(torchbolt.exc.TorchboltError):
        torchbolt.compile(program, fullgraph=True)(p, torch.ones(3))
    assert torch.equal(p.data, torch.zeros(2)) and torch.equal(p.grad, torch.ones(2))
