# tests/end_to_end/test_constants.py
"""Tensors made from Python data inside the function, and results whose size depends on data."""

from __future__ import annotations

import pytest
import torch

import torchbolt


def scaled(x):
    return x * torch.tensor(3.0)


def filled(x):
    return x.index_fill(0, torch.tensor([0]), 2.0)


def listed(x):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0])


def written(x):
    t = torch.tensor([1.0, 2.0, 3.0, 4.0])
    t[1] = 7
    return x * t, t


def written_inside(x):
    t = torch.tensor([1.0, 2.0, 3.0, 4.0])
    t += x.sum()
    return x * t


def returned(x):
    t = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return x * t, t, t[1:]


def grown(x):
    """As a cache of keys grows: an empty tensor, then a concatenation."""
    keys = torch.tensor([], dtype=x.dtype)
    return torch.cat([keys, x * 2], -1)


def masked(x):
    return x[x > 0] * 2


def masked_write(x):
    v = x.expand(2, 6, 4)
    v[v > 0] = -1.5
    return x + 1


@pytest.mark.parametrize(
    "fn",
    [scaled, filled, listed, written, written_inside, returned, grown, masked, masked_write],
    ids=lambda f: f.__name__,
)
def test_later_calls_give_eagers_result(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for seed in range(5):
        torch.manual_seed(seed)
        x = torch.randn(1, 1, 4) if fn is masked_write else torch.randn(4)
        mine = x.clone()
        with torch.no_grad():
            torch.testing.assert_close(compiled(mine), fn(x))
        torch.testing.assert_close(mine, x)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_returned_constant_is_each_calls_own():
    compiled = torchbolt.compile(returned)
    x = torch.ones(4)
    _, first, tail = compiled(x)
    tail.zero_()
    assert first.tolist() == [1, 0, 0, 0], "the results share memory as in eager"
    for _ in range(2):
        assert compiled(x)[1].tolist() == [1, 2, 3, 4]


def test_containers_that_hold_each_other_many_times_over():
    """Forty pairs of pairs are 2 ** 40 when each is looked at wherever it is found; ordinals of sets are 2 ** n."""

    def ordinals(n):
        all_of = [frozenset()]
        for _ in range(n - 1):
            all_of.append(frozenset(all_of))
        return all_of

    def fn(x, pairs):
        sets = ordinals(24)
        pair = (1,)
        for _ in range(40):
            pair = (pair, pair)
        torchbolt.graph_break()
        return x + len(pairs) + len(sets[-1]) + len({hash(s) for s in sets}), pair[0][1][0] is pair[1][0][1]

    pairs = ()
    for _ in range(40):
        pairs = (pairs, pairs)
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        got = compiled(torch.ones(2), pairs)
        assert torch.equal(got[0], torch.ones(2) + 2 + 23 + 24) and got[1]
