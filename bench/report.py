# bench/report.py
"""Tables and bar charts -> one HTML file that needs nothing else, and SVG for a README.

A report is a title, a subtitle and sections in order; a section is a card row, a table, or a bar chart.
The page carries its own style for light and dark screens and no script. Charts are SVG written here, so
that no plotting library is needed where a report is made.

Does not: measure, or decide what a number means; cpu.py and summary.py do.
"""

from __future__ import annotations

import dataclasses
import html
import math
import pathlib
from collections.abc import Sequence

# Eager is the grey everything is compared with; the other colours stay apart for colour-blind readers.
COLOURS = {
    "eager": "#9aa3ad",
    "torchbolt": "#e4572e",
    "torchbolt, filled cache": "#f4a58a",
    "torch.compile": "#3f6fb5",
    "openvino": "#7b5ea7",
    "onnxruntime": "#2a9d8f",
}
FALLBACK = ("#c8963e", "#5c8a3a", "#8d6e63", "#546e7a")


@dataclasses.dataclass
class Table:
    """Rows of text; the first column is left-aligned, the others right. `good` marks cells (row, column)."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    good: frozenset[tuple[int, int]] = frozenset()
    bad: frozenset[tuple[int, int]] = frozenset()


@dataclasses.dataclass
class Bars:
    """Groups of horizontal bars, one colour a series. `None` leaves a bar out. `line` is a value to mark."""

    title: str
    groups: Sequence[str]
    series: dict[str, Sequence[float | None]]
    unit: str
    note: str = ""
    log: bool = False
    line: float | None = None


@dataclasses.dataclass
class Cards:
    """A few headline figures: (figure, what it says)."""

    cards: Sequence[tuple[str, str]]


def colour(series: str, at: int) -> str:
    """The colour of a series: its own where it has one, else by position."""
    return COLOURS.get(series, FALLBACK[at % len(FALLBACK)])


def short(value: float, unit: str = "") -> str:
    """Three significant digits, without an exponent where a person would not write one."""
    if value == 0:
        return f"0{unit}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.2e}{unit}" if digits > 5 else f"{value:,.{digits}f}{unit}"


class _Scale:
    """Values -> pixels, linear from zero or logarithmic between round powers of ten."""

    def __init__(self, bars: Bars, width: float):
        known = [v for values in bars.series.values() for v in values if v is not None and v > 0]
        known += [bars.line] if bars.line else []
        top = max(known, default=1.0)
        self.log, self.width = bars.log, width
        self.low = 10.0 ** math.floor(math.log10(min(known, default=1.0))) if bars.log else 0.0
        self.high = 10.0 ** math.ceil(math.log10(top) + 1e-9) if bars.log else top * 1.08

    def at(self, value: float) -> float:
        """The x of a value, kept inside the chart."""
        if self.log:
            part = math.log10(max(value, self.low) / self.low) / max(math.log10(self.high / self.low), 1e-9)
        else:
            part = value / self.high
        return max(0.0, min(part, 1.0)) * self.width

    def ticks(self) -> list[float]:
        """Round values to draw grid lines at."""
        if self.log:
            count = round(math.log10(self.high / self.low))
            return [self.low * 10**i for i in range(count + 1)]
        step = 10 ** math.floor(math.log10(self.high))
        step = next(s for s in (step / 5, step / 2, step, step * 2) if self.high / s <= 7)
        return [i * step for i in range(int(self.high / step) + 1)]


def svg(bars: Bars, width: int = 860) -> str:
    """The chart as an SVG element that follows the page's text colour."""
    left, right, top = 150, 70, 46
    thick, gap = 13, 12
    group_height = thick * len(bars.series) + gap
    bottom = top + group_height * len(bars.groups)
    scale = _Scale(bars, width - left - right)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 30}" width="{width}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="currentColor" role="img">',
        f"<title>{html.escape(bars.title)}</title>",
    ]
    out += _legend(bars, left)
    for tick in scale.ticks():
        x = left + scale.at(tick)
        out.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="currentColor" opacity=".13"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle" opacity=".65">{short(tick)}</text>')
    if bars.line is not None:
        x = left + scale.at(bars.line)
        out.append(f'<line x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{bottom}" stroke="currentColor" '
                   'stroke-dasharray="4 3" opacity=".6"/>')  # fmt: skip
    for g, name in enumerate(bars.groups):
        y = top + g * group_height + gap / 2
        middle = y + (group_height - gap) / 2 + 4
        out.append(f'<text x="{left - 10}" y="{middle:.1f}" text-anchor="end">{html.escape(name)}</text>')
        for s, (series, values) in enumerate(bars.series.items()):
            out += _bar(scale, left, y + s * thick, thick - 2, values[g], colour(series, s), bars.unit)
    out.append("</svg>")
    return "\n".join(out)


def _bar(scale, left, y, height, value, fill, unit) -> list[str]:
    if value is None:
        return [f'<text x="{left + 4}" y="{y + height - 1:.1f}" opacity=".45" font-size="10">no result</text>']
    length = max(scale.at(value), 1.5)
    return [
        f'<rect x="{left}" y="{y:.1f}" width="{length:.1f}" height="{height}" rx="2" fill="{fill}"/>',
        f'<text x="{left + length + 5:.1f}" y="{y + height - 1:.1f}" font-size="11">{short(value, unit)}</text>',
    ]


def _legend(bars: Bars, x: float) -> list[str]:
    out = []
    for s, series in enumerate(bars.series):
        out.append(f'<rect x="{x}" y="12" width="12" height="12" rx="2" fill="{colour(series, s)}"/>')
        out.append(f'<text x="{x + 17}" y="22">{html.escape(series)}</text>')
        x += 34 + 7 * len(series)
    return out


def _table(table: Table) -> str:
    def cell(r: int, c: int, text: str) -> str:
        mark = "good" if (r, c) in table.good else "bad" if (r, c) in table.bad else ""
        return f'<td class="{mark}">{html.escape(text)}</td>' if mark else f"<td>{html.escape(text)}</td>"

    head = "".join(f"<th>{html.escape(h)}</th>" for h in table.head)
    rows = "\n".join(
        "<tr>" + "".join(cell(r, c, text) for c, text in enumerate(row)) + "</tr>" for r, row in enumerate(table.rows)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _section(section) -> str:
    if isinstance(section, Cards):
        cards = "".join(
            f'<div class="card"><b>{html.escape(figure)}</b><span>{html.escape(text)}</span></div>'
            for figure, text in section.cards
        )
        return f'<div class="cards">{cards}</div>'
    body = _table(section) if isinstance(section, Table) else svg(section)
    note = f'<p class="note">{html.escape(section.note)}</p>' if section.note else ""
    return f"<section><h2>{html.escape(section.title)}</h2>{body}{note}</section>"


STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --sheet: #fff; --ink: #1d2733; --soft: #5c6873;
  --line: #e3e7eb; --good: #1f7a3f; --bad: #b3261e; --accent: #e4572e; }
@media (prefers-color-scheme: dark) { :root { --page: #12161b; --sheet: #1a2027; --ink: #e6eaee;
  --soft: #98a4af;
  --line: #2c353e; --good: #6fcf8f; --bad: #ff8a80; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 960px; margin: 0 auto; padding: 40px 20px 60px }
h1 { font-size: 28px; margin: 0; letter-spacing: -.01em } h2 { font-size: 17px; margin: 0 0 14px }
.sub { color: var(--soft); margin: 6px 0 26px }
section { background: var(--sheet); border: 1px solid var(--line); border-radius: 12px;
  padding: 22px 24px; margin: 0 0 20px }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 14px;
  margin: 0 0 20px }
.card { background: var(--sheet); border: 1px solid var(--line); border-top: 3px solid var(--accent);
  border-radius: 12px; padding: 16px 18px }
.card b { display: block; font-size: 26px; line-height: 1.2; letter-spacing: -.02em }
.card span { color: var(--soft); font-size: 13px }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { color: var(--soft); font-weight: 600; font-size: 12px; vertical-align: bottom }
th, td { text-align: right; padding: 7px 0 7px 14px; border-bottom: 1px solid var(--line) }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: nowrap }
tbody tr:last-child td { border-bottom: 0 } .good { color: var(--good); font-weight: 600 }
.bad { color: var(--bad); font-weight: 600 }
.note { color: var(--soft); font-size: 13px; margin: 14px 0 0 } svg { width: 100%; height: auto }
footer { color: var(--soft); font-size: 13px }
"""


def page(title: str, subtitle: str, sections: Sequence[Cards | Table | Bars], foot: str = "") -> str:
    """The whole report as one HTML text."""
    body = "\n".join(map(_section, sections))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f'<body><main><h1>{html.escape(title)}</h1><p class="sub">{html.escape(subtitle)}</p>\n{body}\n'
        f"<footer>{html.escape(foot)}</footer></main></body></html>\n"
    )


def write(file: pathlib.Path, title: str, subtitle: str, sections: Sequence, foot: str = "") -> pathlib.Path:
    """Writes the report and returns its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(title, subtitle, sections, foot), encoding="utf-8")
    return file


def markdown(table: Table) -> str:
    """The table as Markdown, for a README."""
    rule = ["---", *["---:"] * (len(table.head) - 1)]
    lines = ["| " + " | ".join(cells) + " |" for cells in (table.head, rule, *table.rows)]
    return "\n".join([f"### {table.title}", "", *lines, *(["", table.note] if table.note else []), ""])
