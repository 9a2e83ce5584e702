# bench/demo.py
"""A transformer and a CNN, eager against torchbolt -> a table and a page.

Measured with cpu.py's processes: a first call with an empty cache, a first call in a new process that finds the cache
filled, the steady state, the largest difference from a float64 run, and the kernels before and after fusion.

All rows go by one clock: a call's time is the median of many short rounds in which eager and torchbolt take turns, so
that what slows the machine for a while slows both. There is one such time of eager for each model, which every row
shows; every ratio and difference is computed from the times in its row. A first call happens once and is measured
once. Exits with an error if torchbolt could not run a model.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from bench import cpu, report, summary  # noqa: E402

MODELS = {"bert": "BERT, 4 layers, 256 wide, 2x128 tokens", "resnet50": "ResNet-50, one 224x224 image"}
HEAD = ("", "eager", "torchbolt", "")
OVER = " over a call of eager"


class Times(NamedTuple):
    """Milliseconds of one model: of a call of either in the rounds, and of torchbolt's first calls."""

    eager: float
    torchbolt: float
    cold: float
    second: float

    @property
    def speed(self) -> str:
        """Over eager's."""
        return f"{self.eager / self.torchbolt:.2f}x"

    def over(self, first: float) -> str:
        """What a first call takes beyond one of eager's."""
        return f"{(first - self.eager) / 1e3:.2f} s"


def times_of(m: summary.Measured, case: tuple) -> Times:
    """The times that the table, the cards and the charts show."""
    steady = [m.get("steady", "ms", case, backend=b) for b in ("eager", "torchbolt")]
    first = [m.get("start", "first_ms", case, backend="torchbolt", phase=p) for p in ("cold", "second")]
    return Times(*steady, *first)


def rows_of(m: summary.Measured, case: tuple) -> list[tuple[str, str, str, str]]:
    """One model's lines of the table: what, eager, torchbolt, remark."""
    t = times_of(m, case)
    errors = [m.get("error", "error", case, backend=b) for b in ("eager", "torchbolt")]
    before, after = (m.get("facts", f, case, backend="torchbolt") for f in ("kernels_before_fusion", "kernels"))
    return [
        ("a call, steady state", ms(t.eager), ms(t.torchbolt), f"{t.speed} eager's speed"),
        ("first call, empty cache", ms(t.eager), ms(t.cold), t.over(t.cold) + OVER),
        ("first call, filled cache", ms(t.eager), ms(t.second), t.over(t.second) + OVER),
        ("largest error", f"{errors[0]:.1e}", f"{errors[1]:.1e}", "against a float64 run"),
        ("kernels", str(before), str(after), "before and after fusion"),
    ]


def ms(value: float) -> str:
    """Milliseconds as text."""
    return report.short(value, " ms")


def terminal(title: str, rows) -> str:
    """The table for a terminal."""
    bold, dim, plain = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
    lines = [f"\n  {bold}{title}{plain}", f"  {dim}{'':26}{'eager':>12}{'torchbolt':>14}{plain}"]
    lines += [f"  {what:26}{a:>12}{bold}{b:>14}{plain}   {dim}{note}{plain}" for what, a, b, note in rows]
    return "\n".join(lines)


def sections(m: summary.Measured, tables: dict[str, list]) -> list:
    """The page: headline figures, the steady state and the first calls as charts, a table a model."""
    times = [times_of(m, case) for case in m.cases]
    cards = []
    for t, name in zip(times, tables, strict=True):
        short_name = name.split(",")[0]
        cards.append((t.speed, f"{short_name}: speed over eager, steady state"))
        cards.append((t.over(t.cold), f"{short_name}: first call over eager, empty cache"))
    series = {"eager": [t.eager for t in times], "torchbolt": [t.torchbolt for t in times]}
    starts = {
        "eager": [t.eager for t in times],
        "torchbolt": [t.cold for t in times],
        "torchbolt, filled cache": [t.second for t in times],
    }
    names = [c[0] for c in m.cases]
    charts = [
        report.Bars("One call in steady state (shorter is better)", names, series, " ms"),
        report.Bars("The first call of a process (shorter is better)", names, starts, " ms"),
    ]
    return [report.Cards(cards), *charts, *(report.Table(n, HEAD, rows) for n, rows in tables.items())]


def measure(folder: pathlib.Path, models: list[str], size: str) -> summary.Measured:
    """Measures both backends afresh."""
    shutil.rmtree(folder, ignore_errors=True)
    threads = str(os.cpu_count() or 1)
    argv = f"--threads {threads} --size {size} --rounds 21 --seconds 0.1 --no-micro --dtypes float32".split()
    argv += ["--models", *models, "--backends", "eager", "torchbolt", "--out", str(folder)]
    cpu.Run(cpu.parse(argv)).measure()
    return summary.Measured(folder / "results.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "demo")
    parser.add_argument("--size", default="bench", choices=["bench", "test"])
    args = parser.parse_args()
    print("Compiling a transformer and a CNN, each in fresh processes; about a minute.", flush=True)
    m = measure(args.out, list(MODELS), args.size)
    failed = [line for line in m.lines if line["what"] == "failed"]
    for line in failed:
        print(f"{line['model']} on {line['backend']} ({line['phase']}): {line['reason']}", file=sys.stderr)
    if failed:
        sys.exit(1)
    tables = {MODELS[case[0]]: rows_of(m, case) for case in m.cases}
    for title, rows in tables.items():
        print(terminal(title, rows))
    h = m.header
    machine = f"{h['cpu']}, {h['cores']} cores, {h['isa']}; torch {h['torch']}, Python {h['python']}"
    page = report.write(args.out / "report.html", "Torchbolt against eager PyTorch", machine, sections(m, tables))
    print(f"\n  The same as a page with charts: {page}")


if __name__ == "__main__":
    main()
