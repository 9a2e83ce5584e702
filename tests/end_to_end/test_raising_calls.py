# tests/end_to_end/test_raising_calls.py
"""Calls that raise are compiled up to there: later ones record nothing, and tell the same lines."""

from __future__ import annotations

import asyncio
import traceback

import pytest
import torch

import torchbolt


def at_once(x, n):
    if n > 2:
        raise ValueError(n)
    return x + n


def behind_operators(x, n):
    y = x * 2
    if n > 2:
        raise StopIteration(n)
    return y


def asserted(x, n):
    y = x * 2
    assert n < 2, "too many"
    return y


def from_another(x, n):
    y = x * 2
    try:
        raise KeyError(n)
    except KeyError as e:
        raise ValueError(n) from e
    return y


def inner(y, n):
    if n > 2:
        raise RuntimeError("no", n)
    return y


def in_a_callee_within_with(x, n):
    with torch.no_grad():
        y = x * 2
        return y + inner(y, n)


def by_c_code(x, n):
    return int("a" * n)


PROGRAMS = [at_once, behind_operators, asserted, from_another, in_a_callee_within_with, by_c_code]


def outcome(function, x, n):
    try:
        return repr(function(x, n))
    except Exception as e:
        return [line for line in traceback.format_exception(e) if "in outcome" not in line]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_later_calls_record_nothing(program):
    torchbolt.reset()
    compiled, x = torchbolt.compile(program), torch.ones(2)
    recorded = []
    for _ in range(5):
        assert outcome(compiled, x, 3) == outcome(program, x, 3)
        recorded.append(torchbolt.stats()["recordings"])
    assert recorded[1] == recorded[4] and torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("program", PROGRAMS[:3], ids=lambda program: program.__name__)
def test_calls_that_do_not_raise_are_compiled_beside_them(program):
    torchbolt.reset()
    compiled, x = torchbolt.compile(program), torch.ones(2)
    for n in (3, 1, 3, 1, 1, 3):
        assert outcome(compiled, x, n) == outcome(program, x, n)
    recorded = torchbolt.stats()["recordings"]
    for n in (3, 1):
        assert outcome(compiled, x, n) == outcome(program, x, n)
    assert torchbolt.stats()["recordings"] == recorded and torchbolt.stats()["eager_fallbacks"] == 0


class Lacking(torch.nn.Module):
    def forward(self, x):
        return x + self.bias


def test_what_raised_below_c_ends_no_region():
    torchbolt.reset()
    module, x = Lacking(), torch.ones(2)
    compiled = torchbolt.compile(module)
    for _ in range(3):
        with pytest.raises(AttributeError):
            compiled(x)
    module.bias = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    for _ in range(3):
        assert torch.equal(compiled(x), x + 1)
    assert torchbolt.stats()["regions"] == 1 and torchbolt.stats()["region_ends"] == 0


def test_the_end_of_an_asynchronous_iteration():
    torchbolt.reset()

    class Counted:
        def __init__(self):
            self.n = 0

        def __aiter__(self):
            return self

        @torchbolt.compile
        async def __anext__(self):
            self.n += 1
            if self.n > 2:
                raise StopAsyncIteration
            return torch.ones(2) * self.n

    async def sums():
        return [float(x.sum()) async for x in Counted()]

    recorded = []
    for _ in range(5):
        assert asyncio.run(sums()) == [2.0, 4.0]
        recorded.append(torchbolt.stats()["recordings"])
    assert recorded[2] == recorded[4] and torchbolt.stats()["eager_fallbacks"] == 0
