# bench/instructions.py
"""What a recording executes beyond an eager call, counted by valgrind: the same on a busy machine as on a quiet one.

    python -m bench.instructions [--model mamba] [--rounds 3] [--functions 30]

Needs valgrind, and takes two minutes: torch is imported under it twice. What instructions wait for it does not tell.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path


def observed(model: str, rounds: int, recorded: bool) -> None:
    """Runs below valgrind, which is told when to count."""
    import gc

    import torch

    import torchbolt

    from .models import build

    torch.set_num_threads(1)
    case = build(model, "bench")

    def run(callable) -> None:
        callable(*case.args, **case.kwargs)

    def record() -> None:
        torchbolt.reset()
        run(torchbolt.compile(case.model, backend="eager"))

    def count(on: bool) -> None:
        subprocess.run(["callgrind_control", "-i", "on" if on else "off", str(os.getpid())], stdout=subprocess.DEVNULL)

    with torch.no_grad():
        for _ in range(2):
            run(case.model)
            record()
        gc.collect()
        gc.disable()
        count(True)
        for _ in range(rounds):
            record() if recorded else run(case.model)
        count(False)


def counted(model: str, rounds: int, recorded: bool) -> Counter:
    """Instructions of one call, by function."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        this = [sys.executable, "-m", "bench.instructions", "--model", model, "--rounds", str(rounds)]
        subprocess.run(
            [*tool, *this, "--below", "recorded" if recorded else "eager"], check=True, capture_output=True, text=True
        )
        told = subprocess.run(
            ["callgrind_annotate", "--threshold=100", out], check=True, capture_output=True, text=True
        ).stdout
    rows = re.findall(r"^\s*([\d,]+) \([ \d.]+%\)  [^\n]*?:([^\n]*) \[[^\n]*\]$", told, re.MULTILINE)
    counts = Counter()
    for number, function in rows:
        counts[function] += int(number.replace(",", "")) // rounds
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mamba")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--functions", type=int, default=30)
    parser.add_argument("--below", choices=["eager", "recorded"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.below:
        observed(args.model, args.rounds, args.below == "recorded")
        return
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed")
    eager = counted(args.model, args.rounds, recorded=False)
    recorded = counted(args.model, args.rounds, recorded=True)
    recorded.subtract(eager)
    more = sum(recorded.values())
    print(f"{args.model}: {eager.total() / 1e6:.1f} million instructions in eager, {more / 1e6:+.1f} million recorded")
    for function, number in recorded.most_common(args.functions):
        print(f"{number / 1e3:10.0f} thousand  {function[:100]}")


if __name__ == "__main__":
    main()
