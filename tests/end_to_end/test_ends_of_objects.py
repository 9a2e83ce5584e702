"""Objects that run Python code when they go: __del__, generators within try and with, weakref.finalize."""

from __future__ import annotations

import contextlib
import threading
import weakref

import pytest
import torch

import torchbolt

log: list[str] = []
lock = threading.Lock()
weight = torch.ones(2, requires_grad=True)


class Told:
    def __del__(self):
        log.append("del")


class Plain:
    pass


def guarded():
    try:
        yield 1
    finally:
        log.append("fin")


@contextlib.contextmanager
def manager():
    log.append("in")
    try:
        yield
    finally:
        log.append("out")


def unwatched():
    yield 1
    yield 2


def without_grad(z):
    with torch.no_grad():
        yield z


def locked(n):
    with lock:
        yield from range(n)


def loop_left(x):
    for _ in guarded():
        break
    log.append("a")
    return x + 1


def closed(x):
    it = guarded()
    next(it)
    it.close()
    log.append("a")
    return x + 1


def deleted(x):
    it = guarded()
    next(it)
    del it
    log.append("a")
    return x + 1


def never_kept(x):
    next(guarded())
    log.append("a")
    return x + 1


def abandoned(x):
    context = manager()
    context.__enter__()
    del context
    log.append("a")
    return x + 1


def left_after_an_end(x):
    for _ in guarded():
        if x.sum() > 0:
            break
    log.append("a")
    return x


def gradients_again(x):
    for _ in without_grad(x):
        if x.sum() > 0:
            break
    return (x * weight).requires_grad


def lock_again(x):
    for i in locked(3):
        if (x + i).sum() > 0:
            break
    free = lock.acquire(timeout=2)
    if free:
        lock.release()
    return free


def dropped(x):
    z = Told()
    z = None  # noqa: F841
    return x + len(log)


def replaced(x):
    z = Told()
    y = x * 2
    z = 3  # noqa: F841
    log.append("a")
    return y + len(log)


def weakly_seen(x):
    z = Told()
    r = weakref.ref(z)
    del z
    return r() is None, x + 1


def gone_with_a_frame(x):
    def inner():
        z = Told()  # noqa: F841
        return x + 1

    y = inner()
    log.append("a")
    return y


def gone_with_a_list(x):
    kept = [Told()]
    y = x + 1
    kept.pop()
    log.append("a")
    kept.append(Told())
    kept.clear()
    log.append("c")
    return y


def finalized(x):
    z = Plain()
    weakref.finalize(z, log.append, "F")
    y = x + 1
    del z
    log.append("a")
    return y


PROGRAMS = [
    loop_left,
    closed,
    deleted,
    never_kept,
    abandoned,
    left_after_an_end,
    gradients_again,
    lock_again,
    dropped,
    replaced,
    weakly_seen,
    gone_with_a_frame,
    gone_with_a_list,
    finalized,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_they_go_when_eager_lets_them_go(program):
    def calls(function):
        log.clear()
        seen = []
        for i in range(4):
            seen.append((repr(function(torch.full((2,), 1.0 + i))), tuple(log)))
        return seen

    want = calls(program)
    assert calls(torchbolt.compile(program)) == want


def test_a_generator_that_nobody_waits_for_ends_no_region():
    torchbolt.reset()

    def program(x):
        next(unwatched())
        return x + 1

    compiled = torchbolt.compile(program)
    compiled(torch.ones(2)), compiled(torch.ones(2))
    assert torchbolt.stats()["regions"] == 1 and torchbolt.stats()["region_ends"] == 0
