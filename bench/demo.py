"""bench/demo.py: a transformer and a CNN, eager against torchbolt -> a table and a page.

Measured as cpu.py does it, with its processes: a first call with an empty cache, a first call in a new
process that finds the cache filled, the steady state with both taking turns, the largest difference from
a float64 run, and the kernels that ran before and after fusion. Exits with an error if torchbolt could
not run a model.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from bench import cpu, report, summary  # noqa: E402

MODELS = {"bert": "BERT, 4 layers, 256 wide, 2x128 tokens", "resnet50": "ResNet-50, one 224x224 image"}
HEAD = ("", "eager", "torchbolt", "")
OVER = " over a call of eager"


def rows_of(m: summary.Measured, case: tuple) -> list[tuple[str, str, str, str]]:
    """One model's lines of the table: what, eager, torchbolt, remark."""

    def both(what, field, **key):
        return [m.get(what, field, case, backend=b, **key) for b in ("eager", "torchbolt")]

    eager_ms = m.get("start", "eager_ms", case, backend="torchbolt", phase="cold")
    cold = m.get("start", "first_ms", case, backend="torchbolt", phase="cold")
    second = m.get("start", "first_ms", case, backend="torchbolt", phase="second")

    def over(first):
        return f"{(first - eager_ms) / 1e3:.2f} s{OVER}"

    steady, errors = both("steady", "ms"), both("error", "error")
    before, after = (m.get("facts", f, case, backend="torchbolt") for f in ("kernels_before_fusion", "kernels"))
    return [
        ("first call, empty cache", ms(eager_ms), ms(cold), over(cold)),
        ("first call, filled cache", ms(eager_ms), ms(second), over(second)),
        ("steady state", ms(steady[0]), ms(steady[1]), f"{m.speed(case, 'torchbolt'):.2f}x eager's speed"),
        ("largest error", f"{errors[0]:.1e}", f"{errors[1]:.1e}", "against a float64 run"),
        ("kernels", str(before), str(after), "before and after fusion"),
    ]  # fmt: skip


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
    """The page: headline figures, the steady state as a chart, a table a model."""
    cases = m.cases
    cards = []
    for case, (name, rows) in zip(cases, tables.items(), strict=True):
        short_name = name.split(",")[0]
        cards.append((f"{m.speed(case, 'torchbolt'):.2f}x", f"{short_name}: speed over eager, steady state"))
        cards.append((rows[0][3].removesuffix(OVER), f"{short_name}: first call over eager, empty cache"))
    series = {b: [m.get("steady", "ms", c, backend=b) for c in cases] for b in ("eager", "torchbolt")}
    starts = {
        "eager": [m.get("start", "eager_ms", c, backend="torchbolt", phase="cold") for c in cases],
        "torchbolt": [m.get("start", "first_ms", c, backend="torchbolt", phase="cold") for c in cases],
        "torchbolt, filled cache": [m.get("start", "first_ms", c, backend="torchbolt", phase="second") for c in cases],
    }
    names = [c[0] for c in cases]
    charts = [
        report.Bars("One call in steady state (shorter is better)", names, series, " ms"),
        report.Bars("The first call of a process (shorter is better)", names, starts, " ms"),
    ]
    return [report.Cards(cards), *charts, *(report.Table(n, HEAD, rows) for n, rows in tables.items())]


def measure(folder: pathlib.Path, models: list[str], size: str) -> summary.Measured:
    """Measures both backends afresh."""
    shutil.rmtree(folder, ignore_errors=True)
    threads = str(os.cpu_count() or 1)
    argv = f"--threads {threads} --size {size} --rounds 5 --seconds 0.4 --no-micro --dtypes float32".split()
    argv += ["--models", *models, "--backends", "eager", "torchbolt", "--out", str(folder)]
    cpu.Run(cpu.parse(argv)).measure()
    return summary.Measured(folder / "results.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].split(": ", 1)[1])
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
