# tests/interp/test_generators.py
"""Generators, coroutines and who may consume them."""

import asyncio
import contextlib
import inspect
import itertools
import types

import pytest


def count(n):
    total = 0
    for i in range(n):
        got = yield i
        total += got or 0
    return total


def delegate(n):
    result = yield from count(n)
    yield "total", result


def drive(n):
    log = []
    generator = delegate(n)
    log.append(next(generator))
    try:
        while True:
            log.append(generator.send(10))
    except StopIteration as stop:
        log.append(stop.value)
    return log


def test_send_and_delegation(same):
    same(drive, 3)


def cleanup(log):
    try:
        yield 1
        yield 2
    except ValueError as error:
        log.append(str(error))
        yield "caught"
    finally:
        log.append("closed")


def throw_and_close():
    log = []
    first = cleanup(log)
    next(first)
    log.append(first.throw(ValueError("v")))
    first.close()
    second = cleanup(log)
    next(second)
    second.close()
    third = cleanup(log)
    next(third)
    try:
        third.throw(KeyError("k"))
    except KeyError as error:
        log.append(repr(error))
    return log


def test_throw_and_close(same):
    same(throw_and_close)


def consumers():
    return (
        tuple(count(4)),
        sum(x * x for x in range(5)),
        any(x > 2 for x in range(5)),
        sorted(-x for x in range(3)),
        [*count(3)],
        dict((x, y) for x, y in zip(range(2), count(2))),
        max(count(4)),
        ",".join(str(x) for x in count(3)),
        list(itertools.islice(itertools.chain(count(2), count(2)), 3)),
        {**dict.fromkeys(count(2), 1)},
    )


def test_consumers(same):
    same(consumers)


def attributes():
    generator = count(2)
    states = [inspect.getgeneratorstate(generator)]
    next(generator)
    states.append(inspect.getgeneratorstate(generator))
    facts = (
        isinstance(generator, types.GeneratorType),
        generator.gi_code.co_name,
        generator.gi_frame.f_locals["i"],
    )
    outer = delegate(1)
    next(outer)
    facts += (outer.gi_yieldfrom.__name__, generator.__name__, generator.__qualname__, generator.gi_running)
    list(generator)
    states.append(inspect.getgeneratorstate(generator))
    return states, facts, generator.gi_frame


def test_attributes(same):
    same(attributes)


def stop_inside():
    def bad():
        yield 1
        raise StopIteration("leaks")

    return list(bad())


def already_running():
    def selfish():
        yield next(me)

    me = selfish()
    return next(me)


def send_too_early():
    return count(1).send(3)


def raise_inside():
    def bad():
        yield 1
        yield 1 / 0

    for _ in bad():
        pass


@pytest.mark.parametrize("function", [stop_inside, already_running, send_too_early, raise_inside])
def test_errors(same, function):
    same(function)


def context_managers():
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append(name)
        try:
            yield name
        except ValueError:
            log.append("swallowed")
        finally:
            log.append("end")

    with scope("a") as a, scope("b"):
        raise ValueError(a)
    return log


def test_contextmanager(same):
    same(context_managers)


async def sleeper(n):
    await asyncio.sleep(0)
    return n


class Async:
    async def __aenter__(self):
        return await sleeper("in")

    async def __aexit__(self, *exc):
        await sleeper("out")
        return exc[0] is ValueError

    def __aiter__(self):
        self.left = 2
        return self

    async def __anext__(self):
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return await sleeper(self.left)


async def numbers(n):
    for i in range(n):
        yield await sleeper(i)


async def main():
    log = [await sleeper(1)]
    async with Async() as entered:
        log.append(entered)
        raise ValueError
    async for item in Async():
        log.append(item)
    log.append([x async for x in numbers(3)])
    log.append(await asyncio.gather(sleeper(1), sleeper(2)))
    return log


def run_async():
    return asyncio.run(main())


def drive_by_hand():
    async def inner():
        try:
            return await sleeper(5)
        finally:
            pass

    async def outer():
        return await inner() + 1

    coroutine = outer()
    steps = 0
    while True:
        try:
            coroutine.send(None)
            steps += 1
        except StopIteration as stop:
            return stop.value, steps


def test_async(same):
    same(run_async)
    same(drive_by_hand)


def test_await_errors(same):
    async def bad():
        await 3

    def go():
        bad().send(None)

    same(go)


def test_generator_that_outlives_the_run(run):
    generator = run(count, 3)
    assert isinstance(generator, types.GeneratorType)
    assert next(generator) == 0
    assert run(next, generator) == 1
    assert list(generator) == [2]


def test_wrapped_functions_come_back(run, wrap):
    def go():
        key = wrap(lambda x: -x)
        return sorted([1, 3, 2], key=key), list(map(key, [1, 2])), key.__name__

    assert run(go) == ([3, 2, 1], [-1, -2], "<lambda>")
