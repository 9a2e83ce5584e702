# tests/end_to_end/test_methods_kept.py
"""Methods in C, bound to an object, that live across the end of a region."""

from __future__ import annotations

import collections

import pytest
import torch

import torchbolt

ENDS = torchbolt.graph_break


def of_a_list(x):
    out = []
    append = out.append
    append(x)
    x = x * 2
    ENDS()
    append(x + 1)
    return out


def of_a_tensor(x):
    add = x.add
    y = x * 2
    ENDS()
    return add(y), x


def of_a_tensor_in_place(x):
    y = x * 2
    add = y.add_
    ENDS()
    return add(x), y


def of_a_dict(x):
    parts = {"a": x}
    get = parts.get
    x = x * 2
    ENDS()
    return get("a") + x, get("b")


def of_a_text(x):
    join, form = ",".join, "{}!".format
    x = x * 2
    ENDS()
    return x + 1, join(["a", "b"]), form(3)


def of_a_deque(x):
    queue = collections.deque([1, 2, 3])
    pop = queue.popleft
    x = x * 2
    ENDS()
    return x + pop(), queue


def of_a_class(x):
    make = dict.fromkeys
    x = x * 2
    ENDS()
    return x + 1, make("ab")


def slots(x):
    add, item = x.__add__, [3, 4].__getitem__
    x = x * 2
    ENDS()
    return add(x), item(1)


def as_key(x):
    parts = {"a": 3, "b": 1}
    key = parts.__getitem__
    x = x * 2
    ENDS()
    return x + 1, sorted(parts, key=key)


def in_containers(x):
    out = []
    calls = [out.append, {1: x}.get]
    x = x * 2
    ENDS()
    calls[0](x)
    return calls[0].__self__ is out, out, calls[1](1)


@pytest.mark.parametrize(
    "function",
    [
        of_a_list,
        of_a_tensor,
        of_a_tensor_in_place,
        of_a_dict,
        of_a_text,
        of_a_deque,
        of_a_class,
        slots,
        as_key,
        in_containers,
    ],
    ids=lambda f: f.__name__,
)
def test_one_region_on_each_side(function):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for _ in range(4):
        x = torch.randn(3)
        assert str(compiled(x.clone())) == str(function(x.clone()))
    stats = torchbolt.stats()
    assert stats["regions"] <= 2 and stats["recordings"] == 2
    assert stats["region_ends"] == 1 and stats["eager_fallbacks"] == 0


def called(x, out, method):
    x = x * 2
    method(x)
    ENDS()
    method(x + 1)
    return out


def test_a_method_among_the_arguments():
    torchbolt.reset()
    compiled = torchbolt.compile(called)
    for make in [list, list, list, collections.deque, list, collections.deque]:
        x, mine, theirs = torch.randn(3), make(), make()
        assert str(compiled(x, mine, mine.append)) == str(called(x, theirs, theirs.append))
    assert torchbolt.stats()["regions"] == 4
    # This method has the same C function, and belongs to another object than the one that is returned.
    mine, other = [], []
    assert compiled(torch.ones(3), mine, other.append) == [] and len(other) == 2
    mine = [torch.ones(3)]
    assert len(compiled(torch.ones(3), mine, mine.append)) == 3
    assert len(compiled(torch.ones(3), [1], [0].extend)) == 1


def test_methods_are_compared_by_what_they_are_bound_to():
    def same(x, first, second):
        return x + 1 if first == second else x - 1

    torchbolt.reset()
    compiled = torchbolt.compile(same)
    x, a, b = torch.randn(3), [], []
    for first, second in [(a.append, b.append), (a.append, a.append), (a.append, a.extend), (b.pop, a.pop)]:
        assert torch.equal(compiled(x, first, second), same(x, first, second))
