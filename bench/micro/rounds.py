# bench/micro/rounds.py
"""Functions -> the seconds of each, taken in turns, so that what slows the machine slows all of them."""

from __future__ import annotations

import statistics
import time


def times(functions, seconds):
    """Lower quartile of each function's seconds, rounds interleaved."""
    for f in functions:
        f()
    seen = [[] for _ in functions]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(seen[0]) < 8:
        for f, s in zip(functions, seen, strict=True):
            start = time.perf_counter()
            f()
            s.append(time.perf_counter() - start)
    return [statistics.quantiles(s, n=4)[0] for s in seen]
