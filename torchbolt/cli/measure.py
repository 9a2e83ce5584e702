# torchbolt/cli/measure.py
"""Calls -> times. Eager and compiled take turns, so that what slows the machine for a while slows both."""

from __future__ import annotations

import ctypes
import gc
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


def peaks(eager, ours, forget) -> dict:
    """The largest memory of a call in MB, by name, and what of ours is kept; None where the system does not say.

    Both are counted from what the process holds after forget(), which lets go of all that `ours` keeps between calls
    (memory of temporaries, packed weights, code): what is kept is used, though a call that finds it there does not ask
    for it. Memory of a GPU where anything lies on one.
    """
    on_cuda = torch.cuda.is_available() and _cuda_in_use() > 0
    in_use = _cuda_in_use if on_cuda else lambda: _resident("VmRSS")
    found = {"torchbolt": _highest(ours, on_cuda), "kept": in_use()}
    forget()
    base = in_use()
    found["eager"] = _highest(eager, on_cuda)
    return {name: None if base is None or mb is None else max(0.0, mb - base) for name, mb in found.items()}


def _highest(call, on_cuda: bool) -> float | None:
    if on_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() / 2**20
    _give_back_the_heap()
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    except OSError:
        return None
    call()
    return _resident("VmHWM")


def _cuda_in_use() -> float:
    return torch.cuda.memory_allocated() / 2**20


def _resident(name: str) -> float | None:
    _give_back_the_heap()
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":")), None)


def _give_back_the_heap() -> None:
    """What was freed stays with the C library, and a call that gets it again would seem to need nothing."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
