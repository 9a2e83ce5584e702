# tests/end_to_end/test_data_through_iterators.py
"""Tensors whose data Python gets through iterators of C: every call sees its own, wherever the region ends."""

from __future__ import annotations

import functools
import heapq
import itertools

import pytest
import torch

import torchbolt

INPUTS = ([1.0, 2.0], [5.0, 0.0], [0.0, 7.0], [1.0, 2.0], [3.0, 3.0])


def generated(x):
    yield from map(int, x)


def assigned(x):
    taken = [9]
    taken[:] = filter(lambda t: t > 1, x)
    return taken


def extended(x):
    taken = [1]
    taken += map(int, x)
    return taken


def unpacked(x):
    first, *rest = map(bool, x)
    return first, rest


def unpacked_exactly(x):
    first, second = map(int, x)
    return first, second


def one_after_the_other(x):
    numbers = map(int, x)
    first = next(numbers)
    y = x + first
    return first, next(numbers), y


def popped(x):
    heap = list(x)
    heapq.heapify(heap)
    return heapq.heappop(heap), heap


def ordered(x):
    taken = list(x)
    taken.sort()
    return taken


def removed(x):
    taken = list(x)
    taken.remove(x[1])
    return taken


PROGRAMS = {
    "display": lambda x: [*map(int, x)],
    "display of a filter": lambda x: ([*filter(lambda t: t > 1, x)], x + 1),
    "set display": lambda x: ({*map(int, x)}, x + 1),
    "next": lambda x: next(filter(lambda t: t > 1, x), None),
    "accumulate": lambda x: list(itertools.accumulate(x, max)),
    "dict": lambda x: dict(enumerate(map(int, x))),
    "zip": lambda x: tuple(zip(map(bool, x), "ab", strict=True)),
    "zip of many": lambda x: list(zip(*[map(int, x), map(float, x)], strict=True)),
    "product": lambda x: list(itertools.product(filter(lambda t: t >= 1, list(x)), [1])),
    "chain": lambda x: list(itertools.chain(map(int, x), filter(None, x))),
    "takewhile": lambda x: list(itertools.takewhile(lambda t: t < 2, x)),
    "groupby": lambda x: list(itertools.groupby(map(int, x)))[0][0],
    "star": lambda x: ((lambda *numbers: numbers)(*map(int, x)), x * 2),
    "membership": lambda x: (5 in map(int, x), x * 2),
    "sums": lambda x: (sum(map(int, x)), max(map(float, x)), any(map(bool, x))),
    "reduce": lambda x: (functools.reduce(lambda a, b: a + b, map(int, x)), x * 3),
    "join": lambda x: ",".join(map(str, map(int, x))),
    "comprehension": lambda x: [i for i in map(int, x)],
    "tensor of a display": lambda x: torch.tensor([*map(int, x)]) + x,
    "yield from": lambda x: list(generated(x)),
    "slice assignment": assigned,
    "in-place addition": extended,
    "unpacking": unpacked,
    "exact unpacking": unpacked_exactly,
    "one by one": one_after_the_other,
    "heap": popped,
    "sort": ordered,
    "remove": removed,
}


def outcome(function, values):
    try:
        return repr(function(torch.tensor(values)))
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_sees_its_own_data(name):
    program = PROGRAMS[name]
    compiled = torchbolt.compile(program)
    for values in INPUTS:
        assert outcome(compiled, values) == outcome(program, values)
