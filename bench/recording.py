# bench/recording.py
"""What a first call costs apart from making kernels: recording beside eager, and eighty equal layers beside one.

    python -m bench.recording [--models bert gpt2 ...] [--rounds 7]

Recording is the first call under backend="eager", which records, replays operators and compiles nothing; it and eager
take turns, and the allocator keeps what either frees (`keep_memory`). Layers are those of guards.py; what is compared
is the sum of the compiler's stages with an empty cache.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import tempfile
import time

import torch
from torch import nn

import torchbolt

from .guards import Block
from .models import NAMES, build


def keep_memory() -> None:
    """Has glibc keep what a call frees.

    It gives memory at the end of the heap back to the system, and the next call faults it in again: from none to 2,200
    pages of a call of mamba, by what happened to lie at the end. That is up to a fifth of the call, and says nothing of
    either side.
    """
    M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
    try:
        set_option = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    set_option(M_TRIM_THRESHOLD, 2**31 - 1)
    set_option(M_TOP_PAD, 64 << 20)
    set_option(M_MMAP_THRESHOLD, 32 << 20)


def milliseconds(call) -> float:
    begin = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begin)


@torch.no_grad()
def recording(name: str, rounds: int) -> tuple[float, float]:
    """Milliseconds of an eager call and of a recorded one, medians."""
    case = build(name, "bench")

    def run(model):
        return model(*case.args, **case.kwargs)

    for _ in range(3):
        run(case.model)
    eager, recorded = [], []
    for _ in range(rounds):
        eager += [milliseconds(lambda: run(case.model)) for _ in range(2)]
        torchbolt.reset()
        compiled = torchbolt.compile(case.model, backend="eager")
        recorded.append(milliseconds(lambda compiled=compiled: run(compiled)))
        del compiled
        gc.collect()
    return statistics.median(eager), statistics.median(recorded)


@torch.no_grad()
def compilation(counts: list[int], rounds: int) -> list[float]:
    """Milliseconds of all stages for so many equal layers, medians of taking turns."""
    models = [nn.Sequential(*[Block(64) for _ in range(layers)]).eval() for layers in counts]
    x = torch.randn(1, 16, 64)
    taken = [[] for _ in counts]
    for _ in range(rounds):
        for model, times in zip(models, taken, strict=True):
            with tempfile.TemporaryDirectory() as empty:
                os.environ["TORCHBOLT_CACHE_DIR"] = empty
                torchbolt.reset()
                times.append(1000 * sum(torchbolt.explain(model)(x).stage_times.values()))
    return [statistics.median(times) for times in taken]


def table(models=NAMES, rounds=7) -> dict[str, float]:
    """Prints a line for each model; what recording takes over eager, and eighty layers over one ("layers")."""
    torch.set_num_threads(1)
    keep_memory()
    print("| model | eager ms | recording ms | ratio |\n| --- | ---: | ---: | ---: |")
    ratios = {}
    for name in models:
        eager, recorded = recording(name, rounds)
        ratios[name] = recorded / eager
        print(f"| {name} | {eager:.1f} | {recorded:.1f} | {ratios[name]:.2f} |", flush=True)
    print(f"| median | | | {statistics.median(ratios.values()):.2f} |\n")
    one, many = compilation([1, 80], 3 * rounds)
    print(f"compiling 1 layer: {one:.0f} ms, 80 equal layers: {many:.0f} ms ({many / one:.2f})")
    return ratios | {"layers": many / one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=NAMES)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    table(args.models, args.rounds)


if __name__ == "__main__":
    main()
