# bench/summary.py
"""results.jsonl -> report.md, report.html, summary.json and two charts.

Reads only the lines that cpu.py wrote, so a report can be made again, or of a run that was stopped. A
figure that was not measured is a dash; a backend that could not run a model is named with its reason
below the tables.

Speed is eager's time over the backend's, in the same rounds. "First call" is everything from importing
the compiler to the end of the first call, minus one call of eager.
"""

from __future__ import annotations

import json
import math
import pathlib

from bench import report
from bench.report import Bars, Cards, Table

BACKENDS = ("eager", "torchbolt", "torch.compile", "openvino", "onnxruntime")
COMPILED = BACKENDS[1:]
LIBRARIES = ("openvino", "onnxruntime")
FUSED_KERNELS = (
    "pointwise chain", "softmax", "layer norm", "row sum", "column sum", "full sum", "transpose add"
)  # fmt: skip
NO_BAR = ("transpose add",)
MIN_SPEED = {"resnet50": 1.5, "mobilenetv2": 2.5, "vit": 1.3, "bert": 1.25}


class Measured:
    """The lines of a run, looked up by what they measure. A later line replaces an earlier one."""

    def __init__(self, file: pathlib.Path):
        self.header, *self.lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.cases = list(dict.fromkeys((x["model"], x["dtype"], x["threads"]) for x in self.lines if "model" in x))

    def get(self, what: str, field: str, case: tuple | None = None, **key):
        """The latest value of `field` on a line of that kind; None if there is none."""
        if case:
            key |= dict(zip(("model", "dtype", "threads"), case, strict=True))
        for line in reversed(self.lines):
            if line["what"] == what and field in line and all(line.get(k) == v for k, v in key.items()):
                return line[field]
        return None

    def start_s(self, case: tuple, backend: str, phase: str) -> float | None:
        """Seconds of the first call, less one call of eager in that process."""
        first = self.get("start", "first_ms", case, backend=backend, phase=phase)
        eager = self.get("start", "eager_ms", case, backend=backend, phase=phase)
        return None if first is None else (first - eager) / 1e3

    def speed(self, case: tuple, backend: str) -> float | None:
        """How many times faster than eager."""
        return self.get("steady", "speed", case, backend=backend)

    def extra_mb(self, case: tuple, backend: str) -> float | None:
        """Peak memory of the cold process, less eager's."""
        own = self.get("start", "peak_rss_mb", case, backend=backend, phase="cold")
        eager = self.get("start", "peak_rss_mb", case, backend="eager", phase="cold")
        return None if own is None or eager is None else own - eager


def geomean(values) -> float | None:
    """The geometric mean of the values that are there."""
    logs = [math.log(v) for v in values if v]
    return math.exp(sum(logs) / len(logs)) if logs else None


def ratios(above, below) -> list[float]:
    """Element over element, where both were measured and are more than noise around zero."""
    return [a / b for a, b in zip(above, below, strict=True) if a and b and a > 0 and b > 0]


def text(value, unit: str = "") -> str:
    """A figure for a table cell."""
    if value is None:
        return "-"
    return report.short(value, unit) if isinstance(value, float) else f"{value}{unit}"


def label(case: tuple) -> str:
    """A case's name in tables: bfloat16 is said, float32 is not."""
    return case[0] + (" bf16" if case[1] == "bfloat16" else "")


def steady_table(m: Measured, threads: int) -> Table:
    rows, bad, good = [], set(), set()
    cases = [c for c in m.cases if c[2] == threads]
    for r, case in enumerate(cases):
        speeds = [m.speed(case, b) for b in COMPILED]
        rows.append([label(case), text(m.get("steady", "ms", case, backend="eager")),
                     *(text(s and float(s), "x") for s in speeds)])  # fmt: skip
        if speeds[0]:
            (bad if speeds[0] < 1 else good).add((r, 2))
    rows.append(["geometric mean", "", *(text(geomean(m.speed(c, b) for c in cases), "x") for b in COMPILED)])
    title = f"Steady state, {threads} thread{'s' if threads > 1 else ''}: speed over eager"
    return Table(title, ["model", "eager ms", *COMPILED], rows, good=frozenset(good), bad=frozenset(bad))


def start_table(m: Measured, threads: int) -> Table:
    rows = []
    for case in (c for c in m.cases if c[2] == threads):
        cells = [text(m.start_s(case, b, phase)) for b in COMPILED for phase in ("cold", "second")]
        rows.append([label(case), *cells])
    head = ["model", *(f"{b} {phase}" for b in COMPILED for phase in ("cold", "2nd"))]
    note = ("From importing the compiler to the end of the first call, minus a call of eager, in seconds. "
            "cold: empty cache; 2nd: a new process that finds the cache filled.")  # fmt: skip
    return Table(f"First call, {threads} thread{'s' if threads > 1 else ''}", head, rows, note)


def work_table(m: Measured, threads: int) -> Table:
    rows, bad = [], set()
    for r, case in enumerate(c for c in m.cases if c[2] == threads):
        errors = [m.get("error", "error", case, backend=b) for b in BACKENDS]
        facts = [m.get("facts", f, case, backend="torchbolt") for f in ("regions", "graph_breaks")]
        kernels = [m.get("facts", f, case, backend="torchbolt") for f in ("kernels_before_fusion", "kernels")]
        memory = [m.extra_mb(case, b) for b in COMPILED[:2]]
        rows.append([label(case), *(text(e and float(e)) for e in errors), *map(text, facts),
                     fused(kernels), *map(text, memory)])  # fmt: skip
        if errors[0] and errors[1] and errors[1] > 2 * errors[0]:
            bad.add((r, 2))
    head = ["model", *(f"{b} error" for b in BACKENDS), "regions", "breaks", "kernels", "MB over eager",
            "torch.compile's"]  # fmt: skip
    note = ("error: the largest difference from the same model in float64. kernels: before and after fusion. "
            "MB over eager: peak memory of the process that compiled.")  # fmt: skip
    return Table("Error, regions, kernels, memory", head, rows, note, bad=frozenset(bad))


def fused(kernels: list) -> str:
    """Kernels before and after fusion."""
    return "-" if None in kernels else f"{kernels[0]} → {kernels[1]}"


def micro_table(m: Measured) -> Table:
    rows = []
    three = BACKENDS[:3]
    for title, name, field, unit in (
        ("call of relu(x*2+1) on 16 elements", "call", "us", " us"),
        ("80-layer encoder, one call", "encoder", "ms", " ms"),
        ("80-layer encoder, guards", "encoder", "guard_us", " us"),
        ("memory gained over a million calls", "memory", "gained_mb", " MB"),
    ):
        rows.append([title, *(text(m.get("micro", field, backend=b, name=name), unit) for b in three)])
    for kernel in FUSED_KERNELS:
        rows.append([f"{kernel}, of a copy's bandwidth", *(text(bandwidth(m, kernel, b)) for b in three)])
    note = "Kernels: 64 MB of float32, every core; bytes in and out, over the rate of `copy_`."
    return Table("Small measurements", ["what", *three], rows, note)


def bandwidth(m: Measured, kernel: str, backend: str) -> float | None:
    """A kernel's rate, its result allocated, over that of a copy into memory that is already there."""
    own = m.get("micro", "gb_per_s", backend=backend, kernel=kernel)
    copy = m.get("micro", "gb_per_s", backend="eager", kernel="copy_")
    return own / copy if own and copy else None


def bars(m: Measured) -> list[tuple[str, float | None, float, str]]:
    """What the project promises: (what, measured, bar, "<=" or ">="), over every case that was measured."""
    cases = m.cases
    mine = [m.speed(c, "torchbolt") for c in cases]
    peer = [m.speed(c, "torch.compile") for c in cases]
    library = [max((m.speed(c, b) or 0 for b in LIBRARIES), default=0) for c in cases]
    cold = [m.start_s(c, "torchbolt", "cold") for c in cases]
    second = [m.start_s(c, "torchbolt", "second") for c in cases]
    errors = ratios([m.get("error", "error", c, backend="torchbolt") for c in cases],
                    [m.get("error", "error", c, backend="eager") for c in cases])  # fmt: skip
    memory = [x for c in cases if (x := m.extra_mb(c, "torchbolt")) is not None]
    breaks = [x for c in cases if (x := m.get("facts", "graph_breaks", c, backend="torchbolt")) is not None]
    guards = m.get("micro", "guard_us", backend="torchbolt", name="encoder")
    gained = m.get("micro", "gained_mb", backend="torchbolt", name="memory")
    call = [m.get("micro", "us", backend=b, name="call") for b in ("torchbolt", "eager")]
    kernels = [bandwidth(m, k, "torchbolt") for k in FUSED_KERNELS if k not in NO_BAR]
    rows = [
        ("largest error over eager's", worst(max, errors), 2.0, "<="),
        ("graph breaks, most of a model", worst(max, breaks), 0, "<="),
        ("first call over eager, slowest, s", worst(max, cold), 1.0, "<="),
        ("first call, times less than torch.compile's",
         geomean(ratios([m.start_s(c, "torch.compile", "cold") for c in cases], cold)), 40.0, ">="),
        ("second process over eager, slowest, s", worst(max, second), 0.15, "<="),
        ("speed over torch.compile's, mean", geomean(ratios(mine, peer)), 1.15, ">="),
        ("speed over torch.compile's, worst", worst(min, ratios(mine, peer)), 0.95, ">="),
        ("speed over the better of the two libraries, mean", geomean(ratios(mine, library)), 0.85, ">="),
        ("speed over eager, worst", worst(min, mine), 1.0, ">="),
        *((f"speed over eager, {name}, 1 thread", m.speed((name, "float32", 1), "torchbolt"), bar, ">=")
          for name, bar in MIN_SPEED.items()),
        ("tiny call over eager's", call[0] / call[1] if all(call) else None, 1.0, "<="),
        ("80-layer encoder's guards, us", guards, 20.0, "<="),
        ("fused kernels, worst share of a copy", worst(min, kernels), 0.9, ">="),
        ("peak memory over eager, most, MB", worst(max, memory), 150.0, "<="),
        ("gained over a million calls, MB", gained, 1.0, "<="),
    ]  # fmt: skip
    return rows


def worst(pick, values):
    """The largest or smallest of what was measured; None if nothing was."""
    known = [v for v in values if v is not None]
    return pick(known) if known else None


def bars_table(m: Measured) -> Table:
    rows, good, bad = [], set(), set()
    for r, (what, value, bar, sense) in enumerate(bars(m)):
        rows.append(
            [
                what,
                text(value),
                f"{sense} {bar:g}",
                "-" if value is None else "yes" if reached(value, bar, sense) else "no",
            ]
        )
        if value is not None:
            (good if reached(value, bar, sense) else bad).add((r, 3))
    return Table("What is promised, and what was measured", ["what", "measured", "bar", "reached"], rows,
                 good=frozenset(good), bad=frozenset(bad))  # fmt: skip


def reached(value: float, bar: float, sense: str) -> bool:
    """Whether a figure is on the right side of its bar."""
    return value <= bar if sense == "<=" else value >= bar


def failures_table(m: Measured) -> Table | None:
    def subject(line):
        return label((line["model"], line["dtype"])) if "model" in line else line["name"]

    failed = (line for line in m.lines if line["what"] == "failed")
    rows = dict.fromkeys((subject(x), x["backend"], x["phase"], x["reason"]) for x in failed)
    return Table("Did not run", ["model", "backend", "when", "reason"], list(rows)) if rows else None


def speed_chart(m: Measured, threads: int) -> Bars:
    cases = [c for c in m.cases if c[2] == threads and c[1] == "float32"]
    series = {b: [m.speed(c, b) for c in cases] for b in COMPILED if any(m.speed(c, b) for c in cases)}
    title = f"Speed over eager, float32, {threads} thread{'s' if threads > 1 else ''}"
    return Bars(title, [c[0] for c in cases], series, "x", line=1.0)


def start_chart(m: Measured, threads: int) -> Bars:
    cases = [c for c in m.cases if c[2] == threads and c[1] == "float32"]

    def values(backend):
        return [s if (s := m.start_s(c, backend, "cold")) is None else max(s, 1e-3) for c in cases]

    series = {b: values(b) for b in COMPILED if any(v is not None for v in values(b))}
    return Bars("First call over a call of eager, empty cache (seconds, logarithmic)",
                [c[0] for c in cases], series, " s", log=True)  # fmt: skip


def headline(m: Measured) -> Cards:
    """The figures a reader looks for first; those that were measured."""
    picks = {
        "first call, times less than torch.compile's": ("x", "shorter first call than torch.compile"),
        "first call over eager, slowest, s": (" s", "slowest first call over eager"),
        "speed over torch.compile's, mean": ("x", "torch.compile's speed, geometric mean"),
        "speed over eager, worst": ("x", "eager's speed, worst model"),
    }
    values = {what: value for what, value, _, _ in bars(m)}
    return Cards([(text(values[k], unit), says) for k, (unit, says) in picks.items() if values[k] is not None])


def write(results: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes every form of the report beside the results."""
    m = Measured(results)
    threads = sorted({c[2] for c in m.cases})
    tables = [bars_table(m), *(steady_table(m, t) for t in threads)]
    tables += [form(m, t) for form in (start_table, work_table) for t in threads[:1]]
    tables += [micro_table(m), *filter(None, [failures_table(m)])]
    charts = {f"speed-{t}": speed_chart(m, t) for t in threads}
    charts |= {f"start-{t}": start_chart(m, t) for t in threads[:1]}
    h = m.header
    machine = f"{h['cpu']}, {h['cores']} cores, {h['isa']}; torch {h['torch']}, Python {h['python']}"
    for name, chart in charts.items():
        (folder / f"{name}.svg").write_text(report.svg(chart))
    sections = [headline(m), *charts.values(), *tables]
    report.write(folder / "report.html", "Torchbolt on the CPU", machine, sections)
    (folder / "report.md").write_text(f"{machine}\n\n" + "\n".join(map(report.markdown, tables)))
    everything = {"machine": h, "bars": bars(m), "lines": m.lines}
    (folder / "summary.json").write_text(json.dumps(everything, indent=1))
