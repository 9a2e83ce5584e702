# tests/end_to_end/test_ends_of_tensors.py
"""Tensors that something refers to weakly go when eager lets them go, wherever regions end."""

from __future__ import annotations

import time
import weakref

import pytest
import torch

import torchbolt

log: list[str] = []
weight = torch.ones(2, requires_grad=True)


class Holder:
    t: torch.Tensor | None


holder = Holder()
outside = weakref.WeakValueDictionary()


def before_an_end(x):
    t = x * 2
    r = weakref.ref(t)
    time.clock_gettime(0)
    del t
    return r() is None


def after_an_end(x):
    t = x * 2
    time.clock_gettime(0)
    r = weakref.ref(t)
    y = t + 1
    del t
    return y, r() is None


def printed_before(x):
    t = x * 2
    r = weakref.ref(t)
    print(end="")
    first = r() is None
    del t
    return first, r() is None


def in_weak_values(x):
    known = weakref.WeakValueDictionary()
    t = x * 2
    known["a"] = t
    n = len(known)
    y = t + 1
    time.clock_gettime(0)
    z = t + 2
    del t
    return n, len(known), y, z


def in_weak_values_outside(x):
    t = x * 2
    outside["a"] = t
    n = len(outside)
    y = t + 1
    del t
    return n, len(outside), y


def in_weak_keys(x):
    known = weakref.WeakKeyDictionary()
    t = x * 2
    known[t] = 3
    n = len(known)
    y = t + 1
    del t
    return n, len(known), y


def finalized(x):
    t = x * 2
    weakref.finalize(t, log.append, "gone")
    time.clock_gettime(0)
    y = t + 1
    log.append("before")
    del t
    log.append("after")
    return y


def called_back(x):
    t = x * 2
    r = weakref.ref(t, lambda _: log.append("gone"))  # noqa: F841
    time.clock_gettime(0)
    t = t + 1
    log.append("after")
    return t


def written_over(x):
    holder.t = x * 2
    r = weakref.ref(holder.t)
    time.clock_gettime(0)
    holder.t = x * 3
    return holder.t, r() is None


def left_a_list(x):
    many = [x * i for i in range(3)]
    seen = [weakref.ref(t) for t in many]
    time.clock_gettime(0)
    y = many[2] + 1
    many.pop()
    return [r() is None for r in seen], many[0], y


def left_with_its_frame(x):
    def inner():
        t = x * 2
        r = weakref.ref(t)
        time.clock_gettime(0)
        return r, t + 1

    r, y = inner()
    return r() is None, y


def left_with_its_holder(x):
    h = Holder()
    h.t = x * 2
    r = weakref.ref(h.t)
    time.clock_gettime(0)
    y = h.t + 1
    del h
    return r() is None, y


def kept_by_its_view(x):
    t = x * weight
    u = t[0]
    r = weakref.ref(t)
    time.clock_gettime(0)
    del t
    return r() is None, u


def kept_for_the_backward_pass(x):
    t = x * weight
    r = weakref.ref(t)
    time.clock_gettime(0)
    y = t.sin()
    del t
    first = r() is None
    del y
    return first, r() is None


def a_parameter(x):
    p = torch.nn.Parameter(x * 2)
    r = weakref.ref(p)
    time.clock_gettime(0)
    with torch.no_grad():
        y = p * 2
    del p
    return r() is None, y


PROGRAMS = [
    before_an_end,
    after_an_end,
    printed_before,
    in_weak_values,
    in_weak_values_outside,
    in_weak_keys,
    finalized,
    called_back,
    written_over,
    left_a_list,
    left_with_its_frame,
    left_with_its_holder,
    kept_by_its_view,
    kept_for_the_backward_pass,
    a_parameter,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_they_go_when_eager_lets_them_go(program):
    def calls(function):
        log.clear()
        return [(repr(function(torch.full((2,), 1.0 + i))), tuple(log)) for i in range(4)]

    want = calls(program)
    assert calls(torchbolt.compile(program)) == want


def test_what_stays_ends_no_region():
    torchbolt.reset()
    module = torch.nn.GRU(2, 2).requires_grad_(False)  # it refers to its weights weakly

    def program(x):
        return module(x)[0] + 1

    compiled = torchbolt.compile(program)
    x = torch.ones(1, 2)
    assert torch.equal(compiled(x), program(x)) and torch.equal(compiled(x), program(x))
    assert torchbolt.stats()["regions"] == 1 and torchbolt.stats()["region_ends"] == 0
