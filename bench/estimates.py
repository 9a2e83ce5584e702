# bench/estimates.py
"""`torchbolt estimate` over the benchmark's models: expected against what came true -> a table, and the mean error.

python -m bench.estimates [--size test] [--models bert vit] [--seconds 0.3]
"""

from __future__ import annotations

import argparse
import os
import statistics

import torch

import torchbolt
from bench import models
from torchbolt.cli import estimate
from torchbolt.cli.target import Target


def row(name: str, size: str, seconds: float) -> tuple[str, float, float, float]:
    """Name, expected speed over eager, the true one, and by what part the estimate was off."""
    torchbolt.reset()
    case = models.build(name, size)
    target = Target(name, case.model, case.args, case.kwargs)
    facts = estimate.estimated(target, seconds)
    true = estimate.came_true(target, seconds, facts)
    return name, facts["speed"], true["speed"], true["off_by"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="bench", choices=["bench", "test"])
    parser.add_argument("--models", nargs="+", default=list(models.NAMES), choices=models.NAMES)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler says when it begins and ends
    torch.set_num_threads(args.threads)
    print("| model | expected | came true | off by |\n| --- | ---: | ---: | ---: |")
    rows = []
    for name in args.models:
        rows.append(row(name, args.size, args.seconds))
        print("| {} | {:.2f}x | {:.2f}x | {:+.0%} |".format(*rows[-1]), flush=True)
    print(f"| mean error | | | {statistics.mean(abs(off) for *_, off in rows):.0%} |")


if __name__ == "__main__":
    main()
