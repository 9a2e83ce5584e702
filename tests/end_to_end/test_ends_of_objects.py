# tests/end_to_end/test_ends_of_objects.py
"""Objects that run Python code when they go: __del__, generators within try and with, weakref.finalize."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import threading
import time
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


def kept_past_an_end(x):
    told = Told()  # noqa: F841
    y = x * 2
    time.clock_gettime(0)
    log.append("a")
    return y + 1


def kept_inside_a_list(x):
    told = [Told()]  # noqa: F841
    y = x * 2
    time.clock_gettime(0)
    log.append("a")
    time.clock_gettime(0)
    log.append("b")
    return y + 1


def kept_by_a_caller(x):
    def inner():
        told = Told()  # noqa: F841
        time.clock_gettime(0)
        return x * 2

    told = Told()  # noqa: F841
    y = inner()
    log.append("a")
    return y + 1


def kept_by_a_generator(x):
    def numbers():
        told = Told()  # noqa: F841
        yield 1
        yield 2

    y = x
    for n in numbers():
        y = y * n
        time.clock_gettime(0)
        log.append("a")
    return y


def kept_for_a_weak_reference(x):
    plain, kid = Plain(), Plain()
    kid.up = weakref.proxy(plain)
    plain.n = 3
    y = x * 2
    time.clock_gettime(0)
    return y * kid.up.n


def tensor_kept_for_a_weak_reference(x):
    t = x * 2
    r = weakref.ref(t)
    time.clock_gettime(0)
    y = x + 1
    time.clock_gettime(0)
    return y, r() is None


def kept_in_a_weak_dict(x):
    plain, known = Plain(), weakref.WeakValueDictionary()
    known["a"] = plain
    time.clock_gettime(0)
    y = x * 2
    time.clock_gettime(0)
    return y, len(known)


def weak_reference_with_a_callback(x):
    plain = Plain()
    r = weakref.ref(plain, lambda _: log.append("gone"))  # noqa: F841
    y = x * 2
    time.clock_gettime(0)
    z = y + 1
    del plain
    log.append("a")
    return z


def open_file(x):
    file = open(__file__)  # noqa: SIM115
    number = file.fileno()
    y = x * 2
    time.clock_gettime(0)
    y = y + 1
    return y, len(os.read(number, 5))


class Slotted:
    __slots__ = ("__weakref__", "v")


holder = Plain()
cache = weakref.WeakValueDictionary()


def weakly_seen_past_an_end(x):
    o = Plain()
    y = x + 1
    time.clock_gettime(0)
    r = weakref.ref(o)
    y = y * 2
    del o
    return r() is None, y


def weakly_seen_inside(x):
    o, inner = Plain(), Plain()
    o.inner = inner
    r = weakref.ref(inner)
    time.clock_gettime(0)
    y = x + 1
    del inner
    first = r() is None
    y = y * 2
    del o
    return first, r() is None, y


def written_over(x):
    holder.o = Told()
    r = weakref.ref(holder.o)
    time.clock_gettime(0)
    y = x + 1
    holder.o = None
    log.append("a")
    return r() is None, y


def written_over_in_a_class(x):
    Slotted.shared = Told()
    r = weakref.ref(Slotted.shared)
    time.clock_gettime(0)
    y = x + 1
    Slotted.shared = None
    log.append("a")
    return r() is None, y


def popped(x):
    many = [Plain(), Plain()]
    seen = [weakref.ref(o) for o in many]
    time.clock_gettime(0)
    y = x + 1
    many.pop()
    first = [r() is None for r in seen]
    y = y * 2
    many.clear()
    return first, [r() is None for r in seen], y


def left_a_deque(x):
    queue = collections.deque([Plain()])
    r = weakref.ref(queue[0])
    time.clock_gettime(0)
    y = x + 1
    queue.popleft()
    return r() is None, y


def left_a_slot(x):
    o = Slotted()
    o.v = Plain()
    seen = weakref.ref(o), weakref.ref(o.v)
    time.clock_gettime(0)
    y = x + 1
    o.v = None
    first = [r() is None for r in seen]
    y = y * 2
    del o
    return first, seen[0]() is None, y


def cached_weakly(x):
    o = cache.get("k")
    made = o is None
    if made:
        o = cache["k"] = Plain()
    y = x * 2
    time.clock_gettime(0)
    n = len(cache)
    del o
    y = y + 1
    return made, n, len(cache), y


def weak_set_of_modules(x):
    known = weakref.WeakSet()
    module = torch.nn.Linear(2, 2)
    known.add(module)
    time.clock_gettime(0)
    n = len(known)
    y = x * 2
    del module
    return n, len(known), y + 1


def model_let_go(x):
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    seen = [weakref.ref(each) for each in model.modules()]
    time.clock_gettime(0)
    y = model(x)
    del model
    return [r() is None for r in seen], y


def collected(x):
    o = Plain()
    o.me = o
    r = weakref.ref(o)
    time.clock_gettime(0)
    y = x + 1
    del o
    gc.collect()
    return r() is None, y


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
    kept_past_an_end,
    kept_inside_a_list,
    kept_by_a_caller,
    kept_by_a_generator,
    kept_for_a_weak_reference,
    tensor_kept_for_a_weak_reference,
    kept_in_a_weak_dict,
    weak_reference_with_a_callback,
    open_file,
    weakly_seen_past_an_end,
    weakly_seen_inside,
    written_over,
    written_over_in_a_class,
    popped,
    left_a_deque,
    left_a_slot,
    cached_weakly,
    weak_set_of_modules,
    model_let_go,
    collected,
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


def test_what_is_referred_to_from_a_call_stays_until_the_call_is_over():
    """add() reads its parameter for the last time where it makes the reference, which ends the region."""
    found = weakref.WeakSet()

    def fn(x):
        y = x * 2
        found.add(Plain())
        return y, len(found)

    compiled = torchbolt.compile(fn)
    for _ in range(4):
        assert repr(compiled(torch.ones(2))) == repr(fn(torch.ones(2)))
