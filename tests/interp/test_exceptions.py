# tests/interp/test_exceptions.py
"""Exceptions: which, with which text, chained how, and with which traceback lines."""

import gc
import sys
import traceback
import warnings
import weakref

import pytest


def fail(text):
    raise ValueError(text)


def handled():
    log = []
    try:
        fail("a")
    except (TypeError, ValueError) as error:
        log.append((str(error), sys.exc_info()[0].__name__))
        try:
            fail("b")
        except ValueError as inner:
            log.append((inner.__context__ is error, sys.exc_info()[1] is inner))
        log.append(sys.exc_info()[1] is error)
    else:
        log.append("else")
    finally:
        log.append("finally")
    return log, sys.exc_info()


def reraised():
    try:
        fail("x")
    except ValueError:
        raise


def chained():
    try:
        fail("x")
    except ValueError as error:
        raise KeyError("y") from error


def suppressed():
    try:
        fail("x")
    except ValueError:
        raise KeyError("y") from None


def from_finally():
    try:
        return 1
    finally:
        fail("late")


def overridden():
    for i in range(3):
        try:
            continue
        finally:
            if i == 1:
                return i


def deep(n):
    if n:
        return deep(n - 1)
    return 1 / 0


def assertion(x):
    assert x > 1, f"got {x}"


def bare_raise():
    raise


def raise_wrong():
    raise 3


def catch_wrong():
    try:
        fail("x")
    except 3:
        pass


@pytest.mark.parametrize(
    "function",
    [handled, reraised, chained, suppressed, from_finally, overridden, bare_raise, raise_wrong, catch_wrong],
)
def test_raising(same, function):
    same(function)


def test_traceback_lines(same):
    assert len(same(deep, 5)[3]) == 6
    same(assertion, 0)


def groups():
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), ExceptionGroup("h", [ValueError(3)])])
    except* ValueError as group:
        log.append((type(group).__name__, len(group.exceptions)))
    except* TypeError as group:
        log.append(str(group.exceptions[0]))
    return log


def group_rest():
    try:
        raise ExceptionGroup("g", [ValueError(1), OSError(2)])
    except* ValueError:
        pass


def group_new():
    try:
        raise ExceptionGroup("g", [ValueError(1), OSError(2)])
    except* ValueError:
        raise KeyError("new")


@pytest.mark.parametrize("function", [groups, group_rest, group_new])
def test_exception_groups(same, function):
    same(function)


class Manager:
    def __init__(self, swallow=False, fail_in=None):
        self.log, self.swallow, self.fail_in = [], swallow, fail_in

    def __enter__(self):
        self.log.append("enter")
        if self.fail_in == "enter":
            raise OSError("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append((kind and kind.__name__, str(value), trace is not None))
        if self.fail_in == "exit":
            raise OSError("exit")
        return self.swallow


def with_statement(swallow, fail_in, body):
    manager = Manager(swallow, fail_in)
    result = None
    try:
        with manager as m, Manager(True):
            m.log.append("body")
            result = "partial"
            if body:
                fail(body)
            result = "whole"
    except OSError as error:
        return "os", str(error), manager.log
    return result, manager.log


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("fail_in", [None, "enter", "exit"])
@pytest.mark.parametrize("body", [None, "oops"])
def test_with(same, swallow, fail_in, body):
    same(with_statement, swallow, fail_in, body)


def bad_manager():
    with 3:
        pass


def test_with_errors(same):
    same(bad_manager)


def recurse(n=0):
    return recurse(n + 1)


class Deep:
    def __getattr__(self, name):
        return getattr(self, name + "x")

    def __add__(self, other):
        return self + other


def test_recursion_limit(run):
    for call in (recurse, lambda: Deep().y, lambda: Deep() + 1):
        with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
            run(call)
    assert run(lambda: 1) == 1


def warn_here():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_there()
    return caught[0].lineno, caught[0].filename


def warn_there():
    warnings.warn("look up", stacklevel=2)


def test_warning_location(same):
    same(warn_here)


def test_frames_outlive_their_call(run):
    def keep(x):
        y = x * 2
        try:
            fail("kept")
        except ValueError as error:
            return error.__traceback__

    trace = run(keep, 21)
    assert trace.tb_frame.f_locals["y"] == 42
    assert trace.tb_next.tb_frame.f_code.co_name == "fail"
    assert trace.tb_frame.f_back is not None
    assert "fail" in "".join(traceback.format_tb(trace))


def test_locals_die_with_the_call(run):
    class Thing:
        pass

    def make():
        thing = Thing()
        return weakref.ref(thing)

    assert run(make)() is None


@pytest.mark.parametrize("function", [handled, overridden, groups, lambda: with_statement(True, None, "x")])
def test_no_leak(run, function):
    marker = object()

    def body(x):
        for _ in range(20):
            function()
        return x

    run(body, marker)
    gc.collect()
    before = sys.getrefcount(marker), len(gc.get_objects())
    for _ in range(5):
        run(body, marker)
    gc.collect()
    assert sys.getrefcount(marker) == before[0]
    assert len(gc.get_objects()) - before[1] < 20
