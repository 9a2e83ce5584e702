# torchbolt/cli/measure.py
"""Calls -> times. Eager and compiled take turns, so that what slows the machine for a while slows both."""

from __future__ import annotations

import pathlib
import statistics
import time

import torch

from torchbolt import api
from torchbolt.cli import output


def synchronised(call):
    """`call`, which also waits for the devices that it used."""
    if not torch.cuda.is_available():
        return call

    def whole():
        result = call()
        torch.cuda.synchronize()
        return result

    return whole


def once(call) -> tuple[object, float]:
    """The result of one call and its milliseconds."""
    begin = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - begin) * 1e3


def rounds(calls: dict, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each call by name: rounds in turns, together about `seconds` for each name."""
    taken = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    with output.silence():
        while min(map(len, taken.values())) < 5 or time.perf_counter() < end:
            for name, call in calls.items():
                taken[name].append(once(call)[1])
    return taken


def against_eager(target, seconds: float):
    """Times of a target's eager and compiled calls in turns (rounds), and the compiled call, which is warm."""
    compiled = target.compiled()
    call = synchronised(lambda: target.call(compiled))
    for _ in range(3):
        call()
    api.wait()
    return rounds({"eager": synchronised(target.call), "torchbolt": call}, seconds), call


def summary(times: list[float]) -> dict:
    """Median, the middle half, and how many calls there were."""
    low, middle, high = statistics.quantiles(times, n=4)
    return {"ms": middle, "ms_low": low, "ms_high": high, "calls": len(times)}


class Peak:
    """The largest memory above what was in use before, in MB; None where the system does not say."""

    def __enter__(self):
        self.mb = None
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        try:
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            self._before = _resident("VmRSS")
        except OSError:
            self._before = None
        return self

    def __exit__(self, *_):
        if torch.cuda.is_available():
            self.cuda_mb = torch.cuda.max_memory_allocated() / 2**20
        if self._before is not None:
            self.mb = max(0.0, _resident("VmHWM") - self._before)


def _resident(name: str) -> float:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no {name}")
