# tests/api/test_async_generators.py
"""Asynchronous generators, compiled themselves or gone through by compiled coroutines."""

import asyncio
import inspect
import sys

import pytest
import torch

import torchbolt


async def halves(x, times=3):
    for _ in range(times):
        x = x.sin() / 2
        yield x + 1


async def talks(x):
    given = yield x.relu() * 2
    try:
        yield x.sin() + given
    except ValueError as error:
        yield x * len(str(error))
    finally:
        left.append(x.cos().sum().item())


left: list = []


def run(coroutine):
    """Without an event loop, which would have hooks."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value


async def total(x):
    s = 0
    async for y in halves(x):
        s = s + y.cos()
    return s


async def listed(x):
    return [y.cos() async for y in halves(x)]


async def asked_one_by_one(x):
    g = halves(x)
    a, b = await anext(g), await g.__anext__()
    await g.aclose()
    return a + b, [y async for y in g]


async def talk(x, fn=talks):
    g = fn(x)
    given = [await g.asend(None), await g.asend(3.0), await g.athrow(ValueError("four"))]
    with pytest.raises(StopAsyncIteration):
        await anext(g)
    return given


async def closed_early(x):
    g = talks(x)
    y = await g.asend(None) + await g.asend(2.0)
    await g.aclose()
    return y + x


@pytest.fixture(autouse=True)
def anew():
    torchbolt.reset()
    left.clear()


@pytest.mark.parametrize("drive", [run, asyncio.run])
@pytest.mark.parametrize("fn", [total, listed, asked_one_by_one])
def test_within_compiled_coroutines(fn, drive):
    compiled, want = torchbolt.compile(fn), drive(fn(torch.ones(4)))
    for _ in range(4):
        before = torchbolt.stats()["recordings"]
        torch.testing.assert_close(drive(compiled(torch.ones(4))), want)
    stats = torchbolt.stats()
    assert stats["recordings"] == before and stats["eager_fallbacks"] == 0
    filled = [r for r in torchbolt.api.compiled_of(compiled)._regions() if r.get("ops")]
    # All of it; the part that only asks for the first items does so in one region, too.
    assert all(r["compiled"] for r in filled)
    assert len({r["ops"] for r in filled}) == 1, filled


@pytest.mark.parametrize("fn", [talk, closed_early])
def test_thrown_into_and_closed(fn):
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        left.clear()
        want = run(fn(torch.ones(4)))
        torch.testing.assert_close(run(compiled(torch.ones(4))), want)
        assert len(left) == 2 and left[0] == pytest.approx(left[1])


def test_handed_to_compile():
    compiled = torchbolt.compile(halves)
    assert inspect.isasyncgenfunction(compiled) and inspect.isasyncgen(compiled(torch.ones(2)))

    async def everything(fn):
        return [y async for y in fn(torch.ones(4))]

    want = run(everything(halves))
    for _ in range(3):
        before = torchbolt.stats()["recordings"]
        torch.testing.assert_close(run(everything(compiled)), want)
    stats = torchbolt.stats()
    assert stats["recordings"] == before and stats["eager_fallbacks"] == 0
    assert [r["ops"] for r in torchbolt.api.compiled_of(compiled)._regions() if r.get("ops")] == [3, 3, 3]


def test_talking_to_a_compiled_one():
    for _ in range(3):
        left.clear()
        want = run(talk(torch.ones(4)))
        torch.testing.assert_close(run(talk(torch.ones(4), torchbolt.compile(talks))), want)
        assert len(left) == 2


def test_hooks_are_told_once_and_of_the_callers_generator():
    told = []
    old = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=told.append)
    try:
        made = torchbolt.compile(halves)(torch.ones(2))
        run(first(made))
        assert told == [made]
    finally:
        sys.set_asyncgen_hooks(*old)
    run(made.aclose())


async def first(generator):
    return await anext(generator)


def test_hooks_that_come_later_are_told():
    compiled = torchbolt.compile(total)
    want = run(total(torch.ones(4)))
    for _ in range(2):
        run(compiled(torch.ones(4)))
    told, old = [], sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=told.append)
    try:
        torch.testing.assert_close(run(compiled(torch.ones(4))), want)
    finally:
        sys.set_asyncgen_hooks(*old)
    assert len(told) == 1


async def asks_twice(x):
    g = halves(x)
    asked = g.asend(None)
    y = await asked
    try:
        await asked
    except RuntimeError as error:
        return y, str(error)


async def asks_while_it_runs(x):
    async def busy():
        try:
            await anext(g)
        except RuntimeError as error:
            yield x.sin(), (g.ag_running, str(error))

    g = busy()
    y, seen = await anext(g)
    return y, (seen, g.ag_running)


async def ends_wrongly(x):
    async def wrong():
        yield x.sin()
        raise StopAsyncIteration

    try:
        return [y async for y in wrong()]
    except RuntimeError as error:
        return x.cos(), str(error)


@pytest.mark.parametrize("fn", [asks_twice, asks_while_it_runs, ends_wrongly])
def test_errors(fn):
    compiled, want = torchbolt.compile(fn), run(fn(torch.ones(4)))
    for _ in range(3):
        assert run(compiled(torch.ones(4)))[1] == want[1]
