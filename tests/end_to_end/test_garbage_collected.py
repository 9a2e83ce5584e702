# tests/end_to_end/test_garbage_collected.py
"""Garbage collections come at any instruction of a recording: what they lead to is nothing the program did."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import torchbolt


class Circle:
    def __init__(self):
        self.me = self


@pytest.fixture
def collected_after():
    """Sets after how many new objects collections come."""
    before = gc.get_threshold()
    gc.freeze()  # what is there already takes a tenth of a second to go through
    yield lambda n: gc.set_threshold(n, 2, 2)
    gc.unfreeze()
    gc.set_threshold(*before)


def regions_where_callbacks_come(fn, called, collected_after, thresholds):
    """How many regions the first call has, for each threshold; garbage calls `called` somewhere in each."""
    found = []
    for n in thresholds:
        torchbolt.reset()
        refs = [weakref.ref(Circle(), called) for _ in range(3)]
        compiled = torchbolt.compile(fn)
        collected_after(n)
        got = compiled(torch.ones(2, 3))
        gc.set_threshold(0)
        gc.collect()
        assert all(ref() is None for ref in refs)
        assert torch.equal(compiled(torch.ones(2, 3)), got)
        found.append(torchbolt.stats()["regions"])
    return found


# Where they come differs by the threshold: with so many, within every kind of instruction.
def test_callbacks_of_weak_references(collected_after):
    layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).eval().requires_grad_(False)
    told = []

    def fn(x):
        return layer(x) + len({k: v for k, v in layer.named_parameters()})

    found = regions_where_callbacks_come(fn, lambda ref: told.append(str(ref)), collected_after, range(1, 400, 3))
    assert set(found) == {1}
    assert len(told) == 3 * len(found)


def test_operators_of_callbacks_are_not_recorded(collected_after):
    count = torch.zeros(())

    def fn(x):
        return (x * 2 + 1).sum(0)

    found = regions_where_callbacks_come(fn, lambda ref: count.add_(1), collected_after, range(1, 60))
    assert set(found) == {1}
    assert count == 3 * len(found)


def test_generators_that_are_closed(collected_after):
    closed = []

    def waits():
        try:
            yield
        finally:
            closed.append(len(closed))

    def circle():
        of = Circle()
        of.generator = waits()
        next(of.generator)

    def fn(x):
        return (x * 2 + 1).sum(0)

    for n in range(1, 60):
        torchbolt.reset()
        circle()
        compiled = torchbolt.compile(fn)
        collected_after(n)
        compiled(torch.ones(2, 3))
        gc.set_threshold(0)
        assert torchbolt.stats()["regions"] == 1
        gc.collect()
    assert closed == list(range(59))


def test_what_watches_collections_leaves_nothing():
    before = list(gc.callbacks)
    torchbolt.compile(lambda x: x + 1)(torch.ones(2))
    assert gc.callbacks == before
