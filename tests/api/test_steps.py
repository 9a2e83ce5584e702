# tests/api/test_steps.py
"""compile() of generator functions and coroutine functions: what runs between two yields is compiled."""

import asyncio
import contextlib
import inspect
import sys

import pytest
import torch

import torchbolt


def halves(x, times=3):
    for _ in range(times):
        x = x.sin() / 2
        yield x + 1
    return x.cos() * 3


def talks(x):
    given = yield x.relu() * 2
    try:
        yield x.sin() + given
    except ValueError as error:
        yield x * len(str(error))
    return x.cos() + 1


async def waits(x):
    y = x.relu() * 2
    await asyncio.sleep(0)
    z = (await doubled(y)).sin() + 1
    a, b = await asyncio.gather(doubled(z), doubled(z + 1))
    return (a + b * 2).cos()


async def doubled(x):
    await asyncio.sleep(0.001)
    return x.cos() * 2


async def waits_for_a_future(x):
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, x.relu() + 1)
    y = x.sin() * 3
    return (await future + y).cos() * 2


def everything(generator):
    given = []
    while True:
        try:
            given.append(next(generator))
        except StopIteration as end:
            return [*given, end.value]


def talk(generator):
    given = [next(generator), generator.send(3.0), generator.throw(ValueError("four"))]
    return [*given, *everything(generator)]


def settled(compiled, run, want, regions):
    """Three calls, of which the last records nothing."""
    for _ in range(3):
        before = torchbolt.stats()["recordings"]
        torch.testing.assert_close(run(compiled), want)
    stats = torchbolt.stats()
    assert stats["recordings"] == before and stats["eager_fallbacks"] == 0
    filled = [r for r in torchbolt.api.compiled_of(compiled)._regions() if r.get("ops")]
    assert len(filled) == regions and all(r["compiled"] for r in filled), filled


@pytest.fixture(autouse=True)
def anew():
    torchbolt.reset()


@pytest.mark.parametrize(
    "fn, run, regions",
    [
        (halves, lambda fn: everything(fn(torch.ones(4))), 4),
        (halves, lambda fn: everything(fn(torch.ones(4), times=2)), 3),
        (talks, lambda fn: talk(fn(torch.ones(4))), 3),
        # What asyncio itself does in between differs between versions.
        (waits, lambda fn: asyncio.run(fn(torch.ones(4))), 3 if sys.version_info >= (3, 12) else 4),
        (waits_for_a_future, lambda fn: asyncio.run(fn(torch.ones(4))), 3 if sys.version_info >= (3, 12) else 5),
    ],
)
def test_stretches_are_compiled(fn, run, regions):
    settled(torchbolt.compile(fn), run, run(fn), regions)


def test_kinds_and_names_stay():
    generator, coroutine = torchbolt.compile(halves)(torch.ones(2)), torchbolt.compile(waits)(torch.ones(2))
    assert inspect.isgenerator(generator) and generator.__name__ == "halves"
    assert asyncio.iscoroutine(coroutine) and inspect.iscoroutinefunction(torchbolt.compile(waits))
    coroutine.close()


def named(self, _body, /, *_body_, by_name=1, **rest):
    yield self + _body + sum(_body_) + by_name + sum(rest.values())


@pytest.mark.parametrize("fn", [halves, doubled, named])
@pytest.mark.parametrize(
    "args, kwargs", [((), {}), ((1, 2, 3), {}), ((1,), {"y": 1}), ((), {"x": 1, "times": 2, "z": 3})]
)
def test_wrong_arguments_are_refused_by_the_call(fn, args, kwargs):
    def outcome(fn):
        try:
            made = fn(*args, **kwargs)
        except TypeError as error:
            return str(error)
        made.close()
        return None

    assert outcome(torchbolt.compile(fn)) == outcome(fn)


def test_all_kinds_of_arguments():
    for args, kwargs in [((1, 2), {}), ((1, 2, 3, 4), {"by_name": 5, "self": 6, "z": 7})]:
        assert list(torchbolt.compile(named)(*args, **kwargs)) == list(named(*args, **kwargs))


def test_methods():
    class Holds:
        scale = 2

        @torchbolt.compile
        def pieces(self, x):
            yield x.sin() * self.scale
            yield x.cos() * self.scale

    for _ in range(2):
        assert [t.tolist() for t in Holds().pieces(torch.zeros(2))] == [[0, 0], [2, 2]]
    assert [t.tolist() for t in torchbolt.compile(Holds().pieces)(torch.zeros(2))] == [[0, 0], [2, 2]]


def test_context_managers():
    left = []

    @contextlib.contextmanager
    @torchbolt.compile
    def scaled(x):
        try:
            yield x.sin() * 2
        finally:
            left.append(x.cos().sum().item())

    for _ in range(3):
        with contextlib.suppress(KeyError), scaled(torch.zeros(3)) as y:
            assert y.tolist() == [0, 0, 0]
            raise KeyError
    assert left == [3.0] * 3


def test_within_another_compiled_function():
    pieces = torchbolt.compile(halves)

    def total(x):
        return sum(piece.sum() for piece in pieces(x.relu()))

    compiled = torchbolt.compile(total)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(4)), total(torch.ones(4)))
    assert [r["ops"] > 5 for r in torchbolt.api.compiled_of(compiled)._regions() if r.get("ops")] == [True]


def test_cancelled_while_it_waits():
    cleaned = []

    @torchbolt.compile
    async def long(x):
        y = x.sin() * 2
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(y.sum().item())

    async def main():
        task = asyncio.ensure_future(long(torch.zeros(2)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(3):
        asyncio.run(main())
    assert cleaned == [0.0] * 3


def test_explain():
    report = torchbolt.explain(halves)(torch.ones(4))
    assert report.graph_count == 4
    assert "yields" in report.break_reasons[0].hint
