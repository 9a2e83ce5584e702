# tests/end_to_end/test_loops_resumed.py
"""Regions that end inside a loop and go on with what is left of it."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
import torch
from torch import nn

import torchbolt

LAYERS = 12


class Layer(nn.Module):
    def __init__(self, ends):
        super().__init__()
        self.linear, self.ends = nn.Linear(3, 3), ends

    def forward(self, x):
        x = self.linear(x)
        if self.ends:
            torchbolt.graph_break()
        return x.relu()


def by_index(x, layers):
    for i in range(len(layers)):
        x = layers[i](x)
    return x


def listed(x, layers):
    for layer in layers:
        x = layer(x)
    return x


def backwards(x, layers):
    for layer in reversed(layers):
        x = layer(x)
    return x


def numbered(x, layers):
    for i, layer in enumerate(layers):
        x = layer(x) + i
    return x


def weighted(x, layers):
    for layer, weight in zip(layers, (0.5, 1.0) * LAYERS):
        x = layer(x) * weight
    return x


def named(x, layers):
    for name, layer in {f"layer{i}": layer for i, layer in enumerate(layers)}.items():
        x = layer(x) + len(name)
    return x


def compared(function, ends, calls=5):
    torch.manual_seed(0)
    layers = nn.ModuleList(Layer(i in ends) for i in range(LAYERS))
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    with torch.no_grad():
        for _ in range(calls):
            x = torch.randn(2, 3)
            torch.testing.assert_close(compiled(x, layers), function(x, layers))
    return torchbolt.stats()


LOOPS = [by_index, listed, backwards, numbered, weighted, named]


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_what_is_left_of_a_loop_is_one_region(function):
    stats = compared(function, {3})
    assert stats["regions"] == 2 and stats["region_ends"] == 1 and stats["eager_fallbacks"] == 0


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("ends", [{2, 8}, {1, 4, 7, 10}, set(range(LAYERS))], ids=len)
def test_ends_in_many_turns_never_lead_to_eager(function, ends):
    stats = compared(function, ends)
    assert stats["eager_fallbacks"] == 0


def test_turns_that_all_end_share_their_regions():
    assert compared(listed, set(range(LAYERS)))["regions"] <= 5


def lists_grow(x, items):
    for item in items:
        torchbolt.graph_break()
        x = x + item
        if len(items) < 6:
            items.append(item * 2)
    return x


def kept(x, items):
    iterator = iter(items)
    for item in iterator:
        torchbolt.graph_break()
        if item > 1:
            break
        x = x + item
    return x * sum(iterator), list(iterator)


def nested(x, items):
    for i in range(3):
        for j, item in enumerate(items):
            if i == 1 and j == 1:
                torchbolt.graph_break()
            x = x * i + item
    return x


def over(x, items):
    iterator = iter(items)
    x = x + next(iterator)
    torchbolt.graph_break()
    for item in iterator:
        x = x * item
    return x, next(iterator, "over"), x + 1


def dict_written(x, items):
    parts = dict.fromkeys(items, 0)
    for key in parts:
        torchbolt.graph_break()
        parts[key] = x * key
    return parts


def zipped_unequal(x, items):
    first = iter(items)
    for a, b in zip(first, itertools.islice(items, 2)):
        torchbolt.graph_break()
        x = x * a + b
    return x, list(first)


def pairs_of_one_iterator(x, items):
    both = iter(items)
    for a, b in zip(both, both):
        x = x * a + b
        if a == 1:
            torchbolt.graph_break()
    return x


def outcome(function, x, items):
    items = list(items)
    try:
        return function(x, items), items
    except RuntimeError as error:
        return type(error), str(error), items


@pytest.mark.parametrize(
    "function",
    [lists_grow, kept, nested, over, dict_written, zipped_unequal, pairs_of_one_iterator],
    ids=lambda f: f.__name__,
)
def test_iterators_stand_where_the_run_left_them(function):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for items in ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 5, 4], [1, 2], [1, 2, 3, 4]):
        x = torch.randn(3)
        assert str(outcome(compiled, x, items)) == str(outcome(function, x, items))


def test_an_iterator_among_the_arguments():
    def run(x, iterator):
        for item in iterator:
            x = x * item
            if item == 2:
                return x
        return -x

    torchbolt.reset()
    compiled = torchbolt.compile(run)
    x = torch.randn(3)
    for _ in range(3):
        mine, theirs = iter([1, 2, 3, 4]), iter([1, 2, 3, 4])
        for _ in range(3):
            torch.testing.assert_close(compiled(x, mine), run(x, theirs))
        assert list(mine) == list(theirs) == []


def test_a_very_long_loop_without_operators_is_not_recorded_to_its_end():
    """It runs plainly from some point on, and in later calls from its first turn."""

    def fn(x, n):
        total = 0
        for i in range(n):
            total += i % 7
        y = x + total
        return torch.tanh(y * 2)

    torchbolt.reset()
    compiled, x = torchbolt.compile(fn), torch.randn(3)
    with torch.no_grad():
        for n in (300_000, 300_000, 300_001, 10):
            torch.testing.assert_close(compiled(x, n), fn(x, n))
    stats = torchbolt.stats()
    assert list(stats["break_reasons"]) == ["runs for very long without an operator"]
    assert stats["recordings"] <= 3 and stats["eager_fallbacks"] == 0


def test_a_very_long_loop_behind_operators():
    def fn(x, n):
        y = torch.tanh(x * 2)
        found = [i for i in range(n) if i % 100_003 == 0]
        return y + len(found)

    torchbolt.reset()
    compiled, x = torchbolt.compile(fn), torch.randn(3)
    with torch.no_grad():
        for n in (800_000, 800_000, 800_000):
            torch.testing.assert_close(compiled(x, n), fn(x, n))
    stats = torchbolt.stats()
    assert stats["break_reasons"] == {"runs for very long without an operator": 1}
    assert stats["recordings"] <= 3 and stats["eager_fallbacks"] == 0


def test_under_fullgraph_a_very_long_loop_is_recorded():
    def fn(x):
        return x + sum(i % 7 for i in range(300_000))

    torchbolt.reset()
    compiled, x = torchbolt.compile(fn, fullgraph=True), torch.randn(3)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), fn(x))
    assert torchbolt.stats()["regions"] == 1


def test_a_loop_full_of_ends_without_operators_goes_on_plainly():
    """Each turn calls C functions that nobody knows, and takes ways of its own."""

    def fn(x, n):
        kinds = {}
        for i in range(n):
            kind = unicodedata.category(chr(i))
            if kind in ("Lu", "Ll") or unicodedata.bidirectional(chr(i)) == "WS":
                kinds[kind] = kinds.get(kind, 0) + 1
        y = x + kinds["Ll"]
        return torch.tanh(y * 2), kinds

    torchbolt.reset()
    compiled, x = torchbolt.compile(fn), torch.randn(3)
    with torch.no_grad():
        for i in range(4):
            got, want = compiled(x, 20_000), fn(x, 20_000)
            torch.testing.assert_close(got[0], want[0])
            assert got[1] == want[1]
            if i == 2:
                before = torchbolt.stats()["recordings"]
    assert torchbolt.stats()["recordings"] == before < 150
