# bench/calls.py
"""What a call costs when it computes next to nothing: one operator on sixteen elements, beside eager and torch.compile.

python -m bench.calls [--seconds 1]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import torchbolt

CALLS = 2000


def shift(x):
    return x + 1


def microseconds(call, x) -> float:
    """Of one call, the mean of many in a row."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        call(x)
    return (time.perf_counter() - begin) * 1e6 / CALLS


def table(seconds=1.0) -> dict[str, float]:
    """Prints microseconds of a call: medians of taking turns for so long."""
    torch.set_num_threads(1)
    ways = {"eager": shift, "torchbolt": torchbolt.compile(shift), "torch.compile": torch.compile(shift)}
    x = torch.randn(16)
    for call in ways.values():
        microseconds(call, x)
    taken = {name: [] for name in ways}
    end = time.perf_counter() + seconds * len(ways)
    while time.perf_counter() < end:
        for name, call in ways.items():
            taken[name].append(microseconds(call, x))
    rows = {name: statistics.median(times) for name, times in taken.items()}
    print("| " + " | ".join(f"{name}, us" for name in rows) + " |\n|" + "---|" * len(rows))
    print("| " + " | ".join(f"{row:.2f}" for row in rows.values()) + " |", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    table(parser.parse_args().seconds)


if __name__ == "__main__":
    main()
