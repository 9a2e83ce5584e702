# tests/end_to_end/test_ends_anywhere.py
"""Regions end and begin while an exception is handled, inside generators, and in Python that native code calls."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import traceback

import pytest
import torch
from countdown import Countdown

import torchbolt

EVENTS = []


def ends(text="here"):
    """A region ends in here: the clock may not be read at another time."""
    time.clock_gettime(0)
    EVENTS.append(text)


def same(got, want):
    assert type(got) is type(want)
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
    elif isinstance(want, (torch.Tensor, dict)):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    else:
        assert got == want


def check(fn, *args, rounds=6, settled_after=4, fallbacks=0):
    """fn, compiled, gives eager's results and events; after a few rounds nothing is recorded any more."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    settled = None
    with torch.no_grad():
        for round_ in range(rounds):
            if round_ == settled_after:
                settled = torchbolt.stats()
            EVENTS.clear()
            want = fn(*[a.clone() for a in args])
            wanted = list(EVENTS)
            EVENTS.clear()
            got = compiled(*[a.clone() for a in args])
            same(got, want)
            assert EVENTS == wanted, round_
            assert sys.exc_info() == (None, None, None)
    after = torchbolt.stats()
    assert after["eager_fallbacks"] == fallbacks
    assert after["regions"] == settled["regions"] and after["graph_breaks"] == settled["graph_breaks"]
    assert after["graph_breaks"] > 0
    return after


X = torch.tensor([1.0, 2.0, 3.0, 4.0])


# -- while an exception is handled


def handled(x):
    try:
        raise ValueError("bad", 3)
    except ValueError as error:
        y = x * 2
        ends()
        z = y + 1
        return z, error.args, sys.exc_info()[1] is error


def raised_while_handling(x, other):
    try:
        try:
            raise KeyError("first")
        except KeyError:
            x = x + 1
            ends("inner")
            if other:
                raise IndexError("second") from None
            x = x + 1
            raise
    except LookupError as error:
        x = x * 2
        ends("outer")
        line = traceback.extract_tb(error.__traceback__)[-1].line
        return x + 1, repr(error), repr(error.__context__), error.__suppress_context__, line


def handled_twice(x):
    return raised_while_handling(x, other=True)


def handled_and_raised_again(x):
    return raised_while_handling(x, other=False)


def finally_after_an_error(x):
    try:
        try:
            x = x + 1
            raise OSError(2, "none")
        finally:
            x = x * 2
            ends("finally")
            x = x * 3
    except OSError as error:
        return x, error.errno, error.strerror


class Own(Exception):
    def __init__(self, code, **more):
        super().__init__(code)
        self.code = code
        self.more = more


def own_exception(x):
    try:
        raise Own(3, where=x * 2)
    except Own as error:
        ends()
        return x + error.code, error.more["where"]


def in_a_loop(x):
    for i in range(3):
        try:
            x = x * 2
            if i == 1:
                raise ValueError(i)
        except ValueError as error:
            ends(str(error))
            x = x + 1
    return x


@pytest.mark.parametrize(
    "fn", [handled, handled_twice, handled_and_raised_again, finally_after_an_error, own_exception, in_a_loop]
)
def test_while_an_exception_is_handled(fn):
    check(fn, X)


def test_the_callers_exception_stays():
    compiled = torchbolt.compile(handled)
    with torch.no_grad():
        for _ in range(4):
            try:
                raise RuntimeError("the caller's")
            except RuntimeError as error:
                compiled(X)
                assert sys.exc_info()[1] is error
                with pytest.raises(RuntimeError, match="the caller's"):
                    raise
            assert sys.exc_info()[1] is None


def test_what_is_raised_after_an_end_leaves_as_in_eager():
    def fn(x):
        try:
            raise KeyError("first")
        except KeyError:
            y = x + 1
            ends()
            raise IndexError(int(y.shape[0]))

    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for _ in range(3):
            with pytest.raises(IndexError, match="4") as caught:
                compiled(X)
            assert isinstance(caught.value.__context__, KeyError)
            assert caught.traceback[-1].name == "fn"


# -- generators


def halves(x):
    for i in range(3):
        x = x * 0.5
        ends(f"half {i}")
        yield x + i


def pairs(n):
    for i in range(n):
        yield i, float(i)


def loop_over_a_generator(x):
    total = x * 0
    for i, f in pairs(3):
        total = total + x * i
        ends("body")
        total = total + f
    return total


def end_inside_a_generator(x):
    total = x * 0
    for y in halves(x):
        total = total + y
    return total


def delegating(x):
    got = yield from halves(x)
    yield x
    return got


def end_inside_a_delegate(x):
    total = x * 0
    for y in delegating(x):
        total = total + y * 2
    return total


def talking(x):
    while True:
        got = yield x
        if got is None:
            return "over"
        ends(f"got {got}")
        x = x + got


def send_and_return(x):
    generator = talking(x)
    out = [next(generator), generator.send(1), generator.send(2)]
    try:
        next(generator)
    except StopIteration as stop:
        return out, stop.value


def careful(x):
    try:
        yield x * 2
    except ValueError as error:
        ends(f"caught {error}")
        yield x + 1
    finally:
        ends("closed")


def throw_and_close(x):
    first = careful(x)
    a = next(first)
    b = first.throw(ValueError("v"))
    first.close()
    return a + b


@contextlib.contextmanager
def scaled(log):
    log.append("enter")
    ends("enter")
    try:
        yield 3
    finally:
        ends("exit")
        log.append("exit")


def with_a_context_manager(x):
    log = []
    with scaled(log) as factor:
        y = x * factor
        ends("body")
        y = y + 1
    return y * 2, log


def with_an_error(x):
    log = []
    try:
        with scaled(log) as factor:
            y = x * factor
            raise KeyError("inside")
    except KeyError as error:
        return y * 2, log, str(error)


@contextlib.contextmanager
def swallow():
    try:
        yield
    except ZeroDivisionError:
        ends("swallowed")


def with_a_swallowed_error(x):
    with swallow():
        x = x + 1
        1 / 0
    return x * 2


def interleaved(x):
    a, b = halves(x), halves(x * 2)
    out = next(a) + next(b)
    out = out + next(a)
    ends("between")
    return out + next(b)


def expression(x):
    return sum(y * 2 for y in halves(x))


class Counting(Countdown):
    def given(self):
        ends(f"next {self.n}")
        return self.n


def own_iterator(x):
    for i in Counting(3):
        x = x * 2 + i
    return x


@pytest.mark.parametrize(
    "fn",
    [
        loop_over_a_generator,
        end_inside_a_generator,
        end_inside_a_delegate,
        send_and_return,
        throw_and_close,
        with_a_context_manager,
        with_an_error,
        with_a_swallowed_error,
        interleaved,
        expression,
        own_iterator,
    ],
)
def test_generators(fn):
    check(fn, X, rounds=10, settled_after=7)


def test_a_generator_that_escapes():
    def later(x):
        yield x * 2
        yield x + 1

    def fn(x):
        generator = later(x)
        first = next(generator)
        return first + 1, generator

    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for _ in range(3):
            first, rest = compiled(X)
            torch.testing.assert_close(first, X * 2 + 1)
            (second,) = rest
            torch.testing.assert_close(second, X + 1)
            assert type(rest).__name__ == "generator"


# -- Python that native code calls


def noisy(value):
    ends(f"key {value}")
    return -value


def is_large(y):
    ends("asked")
    return bool(y.sum() > 5)


def written_meanwhile(x):
    items = [2, 3, 1]
    try:
        items.sort(key=lambda i: (items.append(0), noisy(i)))
    except ValueError as error:
        return x * 2, str(error), items
    return x * 2, items


CONSUMERS = {
    "any": lambda x: any(is_large(x * i) for i in range(3)),
    "all": lambda x: all(is_large(x * i) for i in range(3)),
    "sum": lambda x: sum((y for y in halves(x)), x),
    "list": lambda x: list(halves(x)),
    "tuple": lambda x: tuple(halves(x)),
    "sorted": lambda x: (x + 1, sorted([2, 3, 1], key=noisy), sorted([2, 3, 1], key=noisy, reverse=True)),
    "sort": lambda x: (lambda items: (items.sort(key=noisy), x * 2, items))([2, 3, 1]),
    "sort of a list that is asked": lambda x: (
        lambda items: (items.sort(key=lambda i: noisy(len(items))), x * 2, items)
    )([2, 3, 1]),
    "sort of a list that is written": written_meanwhile,
    "max": lambda x: (x + 1, max([2, 3, 1], key=noisy), max(4, 7, key=noisy), max((), default=3)),
    "min": lambda x: (x * 2, min((i for i in [2, 3, 1]), key=noisy)),
    "reduce": lambda x: functools.reduce(lambda a, b: (ends(), a + b)[1], [x, x * 2, x * 3]),
    "reduce from": lambda x: functools.reduce(lambda a, b: (ends(), a + b)[1], (y for y in halves(x)), x),
    "map": lambda x: list(map(lambda i: (ends(), x * i)[1], [1, 2])),
    "filter": lambda x: [x * i for i in filter(lambda i: noisy(i) < -1, [1, 2, 3])],
    "zip": lambda x: [y * i for y, i in zip(halves(x), [1, 2])],
    "enumerate": lambda x: [y * i for i, y in enumerate(halves(x))],
    "join": lambda x: (x + 1, ",".join(str(noisy(i)) for i in range(2))),
    "dict": lambda x: {i: y for i, y in enumerate(halves(x))},
    "star": lambda x: torch.stack([*halves(x)]),
    "unpack": lambda x: (lambda a, b, c: a + b * c)(*halves(x)),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_python_that_native_code_calls(name):
    check(CONSUMERS[name], X, rounds=14, settled_after=11)


class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Tanh()

    def forward(self, x):
        for name, part in self.named_children():
            x = part(x) + 1
            ends(name)
        return x


def test_generators_of_torch():
    check(Parts(), X, rounds=10, settled_after=7)


class Measured:
    def __init__(self, x):
        self.x = x

    @property
    def doubled(self):
        ends("property")
        return self.x * 2

    def __add__(self, other):
        ends("add")
        return self.x + other

    def __getattr__(self, name):
        ends(name)
        return len(name)


def special_methods(x):
    measured = Measured(x + 1)
    y = measured.doubled + 1
    z = (measured + y) * 2
    return z + measured.four


def test_special_methods_in_python():
    check(special_methods, X, rounds=10, settled_after=7)


# -- with a dictionary of the frame's locals


def locals_and_a_cell(x):
    y = x * 2

    def inner():
        return y

    ends()
    seen = locals()
    ends()
    return seen["y"] + inner()


def code_in_the_frame(x):
    y = x * 2

    def inner():
        return y

    exec("z = y + 1")
    ends()
    return inner() + locals()["z"]


def code_in_a_copy(x):
    y = x * 2

    def inner():
        return y

    names = dict(locals())
    exec("z = y + 1", {"y": y}, names)
    one = eval("1")
    return inner() + names["z"] + one


@pytest.mark.parametrize("fn", [locals_and_a_cell, code_in_the_frame, code_in_a_copy])
def test_locals_as_a_dictionary(fn):
    check(fn, X)


def test_sets_of_objects_whose_end_is_noticed():
    """What such a write lets go of ends the region, which lets go of the set."""

    class Noticed:
        def __del__(self):
            gone.append(len(gone))

        def __hash__(self):
            return 1

    def fn(x):
        a, b = {Noticed() for _ in range(3)}, {Noticed()}
        y = x + 1
        torchbolt.graph_break()
        a |= b
        return y * len(a)

    gone = []
    compiled = torchbolt.compile(fn)
    for i in range(4):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 8.0))
        assert len(gone) == 4 * (i + 1)
