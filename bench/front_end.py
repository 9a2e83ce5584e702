# bench/front_end.py
"""Every figure that the front end promises, in one run, beside the peer and against its bar.

    python -m bench.front_end [--quick] [--only guards causes ...]

Each part is a program of its own too (calls.py, guards.py, interpreter.py, ...) and runs in a fresh process here, one
after the other. Ends with a table of all figures, which is also written to
out/bench/front_end.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

FILE = pathlib.Path(__file__).resolve().parents[1] / "out" / "bench" / "front_end.json"
TORCHBOLT, PEER = "torchbolt", "torch.compile"


@dataclass
class Figure:
    """At most the bar holds it, or where `least` at least."""

    what: str
    measured: float
    bar: float | None = None
    peer: float | None = None
    least: bool = False

    def cells(self) -> list[str]:
        peer = "" if self.peer is None else f"{self.peer:.3g}"
        if self.bar is None:
            return [self.what, f"{self.measured:.3g}", peer, "", ""]
        reached = self.measured >= self.bar if self.least else self.measured <= self.bar
        limit = f"{'>=' if self.least else '<='} {self.bar:g}"
        return [self.what, f"{self.measured:.3g}", peer, limit, "yes" if reached else "no"]


def call(quick: bool) -> list[Figure]:
    from bench.calls import table

    rows = table(0.3 if quick else 1.0)
    return [
        Figure("a call of one small operator, us", rows[TORCHBOLT], 3, rows[PEER]),
        Figure("... over eager's", rows[TORCHBOLT] / rows["eager"], 1, rows[PEER] / rows["eager"]),
    ]


def guards(quick: bool) -> list[Figure]:
    from bench.guards import table

    bars = {80: 20, 400: 60} if sys.version_info < (3, 12) else {80: 5}
    figures = []
    for layers, row in table((10, 80) if quick else (10, 80, 400), 0.5 if quick else 2.0).items():
        figures += [
            Figure(f"guards of {layers} layers, us", row["guards us"], bars.get(layers)),
            Figure(f"a call of {layers} layers without kernels, us", row[f"{TORCHBOLT} us"], peer=row[f"{PEER} us"]),
            Figure(f"first call of {layers} layers, s", row[f"{TORCHBOLT} first s"], peer=row[f"{PEER} first s"]),
        ]
    return figures


def interpreter(quick: bool) -> list[Figure]:
    from bench.interpreter import table

    rows = table(seconds=0.1 if quick else 0.3, rounds=3 if quick else 5)
    figures = []
    for way in ("plain", "recorded"):
        times = {name: row[way] for name, row in rows.items()}
        worst = max(times, key=times.get)
        figures += [
            Figure(f"interpreter over CPython, {way}, mean", statistics.geometric_mean(times.values()), 2),
            Figure(f"... the most ({worst})", times[worst], 2),
        ]
    return figures


def recording(quick: bool) -> list[Figure]:
    from bench.recording import table

    ratios = table(["bert", "resnet50", "mamba"], 3) if quick else table()
    layers = ratios.pop("layers")
    worst = max(ratios, key=ratios.get)
    return [
        Figure(f"recording over eager, median of {len(ratios)} models", statistics.median(ratios.values()), 1.3),
        Figure(f"... the most ({worst})", ratios[worst], 1.3),
        Figure("... models within the bar", sum(ratio <= 1.3 for ratio in ratios.values()), len(ratios), least=True),
        Figure("compiling 80 equal layers over one", layers, 1.2),
    ]


def symbolic(quick: bool) -> list[Figure]:
    from bench.symbolic import table

    figures = []
    for name, row in table(20 if quick else 100).items():
        figures += [
            Figure(f"{name} at random sizes: compiles", row["compiles"], 2),
            Figure("... a new size over a known one, ms", row["new size ms"], 1),
            Figure("... speed to static, mean of four sizes", statistics.mean(row["to static"]), 0.95, least=True),
        ]
    return figures


def schedules(quick: bool) -> list[Figure]:
    from bench.schedules import table

    rows = table(500 if quick else 10_000)
    return [
        Figure("steps under a schedule: the last that compiled", rows[TORCHBOLT]["last at step"], 2,
               rows[PEER]["last at step"]),
        Figure("... us a step", rows[TORCHBOLT]["us"], peer=rows[PEER]["us"]),
    ]  # fmt: skip


def causes(quick: bool) -> list[Figure]:
    from bench.causes import table

    rows = table()

    def count(name: str) -> list[int]:
        of = rows[name]
        return [sum(row["eager's"] for row in of), sum(row["ends"] == 0 for row in of), sum(row["agree"] for row in of)]

    ours, theirs, all_ = count(TORCHBOLT), count(PEER), len(rows[TORCHBOLT])
    return [
        Figure(f"causes of region ends, of {all_} as in eager", ours[0], all_, theirs[0], least=True),
        Figure("... in one region", ours[1], 15, theirs[1], least=True),
        Figure("... explain and fullgraph agree", ours[2], all_, theirs[2], least=True),
    ]


PARTS = (call, guards, interpreter, recording, symbolic, schedules, causes)


def main() -> None:
    names = [part.__name__ for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a first impression")
    parser.add_argument("--only", nargs="+", default=names, choices=names)
    args = parser.parse_args()
    figures = []
    for part in PARTS:
        if part.__name__ not in args.only:
            continue
        print(f"\n== {part.__name__}", flush=True)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            figures += process.submit(part, args.quick).result()
    print(f"\n| what | torchbolt | {PEER} | bar | reached |\n| --- | ---: | ---: | ---: | ---: |")
    for figure in figures:
        print("| " + " | ".join(figure.cells()) + " |")
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps([figure.cells() for figure in figures], indent=1))


if __name__ == "__main__":
    main()
