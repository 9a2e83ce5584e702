# tests/interp/test_threads.py
"""Signals, threads, and the other things CPython's loop does between instructions."""

import gc
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest


def spin(stop):
    n = 0
    while not stop:
        n += 1
    return n


def test_interrupt_reaches_a_busy_loop(run):
    # A job that a shell starts in the background ignores the signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    stop = []
    timers = [
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]),
        threading.Timer(20, stop.append, [True]),
    ]
    for timer in timers:
        timer.start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            run(spin, stop)
    finally:
        signal.signal(signal.SIGINT, handler)
        timers[1].cancel()
    for timer in timers:
        timer.join()
    assert caught.traceback[-1].name == "spin"


def test_other_threads_get_the_gil(run):
    stop = []
    ticks = []

    def tick():
        for _ in range(5):
            ticks.append(time.monotonic())
            time.sleep(0.005)
        stop.append(True)

    thread = threading.Thread(target=tick)
    thread.start()
    assert run(spin, stop) > 0
    thread.join()
    assert len(ticks) == 5


def test_two_threads_interpret_at_once(run):
    def work(n):
        return sum(x * x for x in range(n))

    with ThreadPoolExecutor(4) as threads:
        results = threads.map(lambda n: run(work, n), [20000] * 4)
    assert list(results) == [work(20000)] * 4


def test_garbage_is_collected_while_we_loop(run):
    class Node:
        pass

    def make(n):
        for _ in range(n):
            a, b = Node(), Node()
            a.other, b.other = b, a

    gc.collect()
    run(make, 20000)
    assert sum(isinstance(x, Node) for x in gc.get_objects()) < 10000
