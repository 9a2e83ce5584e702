# torchbolt/cli/diagnose.py
"""Where TARGET's regions end, ranked by what that costs, with a hint each; and what compiling gains all the same.

What an end costs is not timed one by one. A compiled call's time outside of its kernels goes to guards, to the making
of results, and to going from one region to the next; it is divided among the ends by how often each was met in a call.
"""

from __future__ import annotations

import collections

from torch.profiler import ProfilerActivity, profile, record_function

from torchbolt import explanation
from torchbolt.cli import measure, output
from torchbolt.cli import target as targets

SUMMARY = "graph breaks ranked by what they cost, with hints, and compiled against eager"
TAKES_TARGET = True


def arguments(parser) -> None:
    targets.arguments(parser, or_demo=True)
    targets.add_seconds(parser, 0.5, "each of the two")


def main(args):
    """(facts, text, exit code)."""
    target = targets.of(args)
    with targets.told(target):
        facts = diagnosed(target, args.seconds)
    return facts, _text(facts), 0


def diagnosed(target, seconds: float) -> dict:
    seen = target.call(explanation.explain(target.fn, **target.options))
    times, call = measure.against_eager(target, seconds)
    steady = {name: measure.summary(taken)["ms"] for name, taken in times.items()}
    kernels_ms = min(_kernels_share(call), 1.0) * steady["torchbolt"]
    outside = steady["torchbolt"] - kernels_ms - (seen.guard_us or 0.0) / 1e3
    return {
        "target": target.name,
        "eager_ms": steady["eager"],
        "torchbolt_ms": steady["torchbolt"],
        "speed": steady["eager"] / steady["torchbolt"],
        "kernels_ms": kernels_ms,
        "outside_kernels_ms": max(outside, 0.0),
        "regions": seen.graph_count,
        "breaks": _ranked(seen, max(outside, 0.0)),
        "eager_regions": seen.eager_regions,
        "recompiles": seen.recompiles,
        "specialized_sizes": seen.specialized_sizes,
    }


def _kernels_share(call) -> float:
    """Of a call's time, that in kernels and library calls of compiled regions. A profiler makes all of it longer, so it
    is told as a share, of calls behind the first, in which the profiler itself begins."""
    name, times = "torchbolt diagnose: a call", 5
    with output.silence(), profile(activities=[ProfilerActivity.CPU]) as watched:
        call()
        for _ in range(times):
            with record_function(name):
                call()
    events = watched.events()
    calls = [event.time_range for event in events if event.name == name]
    begin = min(each.start for each in calls)
    ours = [e.time_range for e in events if e.name.startswith("torchbolt::") and e.time_range.start >= begin]
    return sum(each.elapsed_us() for each in ours) / sum(each.elapsed_us() for each in calls)


def _ranked(seen, outside_ms: float) -> list[dict]:
    """One for each place and reason, the dearest first."""
    met = collections.Counter(reason.id for reason in seen.break_reasons)
    crossings = sum(met.values())
    by_id = {reason.id: reason for reason in seen.break_reasons}
    rows = [
        by_id[name].as_dict() | {"count": count, "about_ms": outside_ms * count / (crossings + 1)}
        for name, count in met.most_common()
    ]
    for rank, row in enumerate(rows, 1):
        row["rank"] = rank
    return rows


def _text(facts) -> str:
    shown = [
        ("eager", output.duration(facts["eager_ms"])),
        ("torchbolt", f"{output.duration(facts['torchbolt_ms'])}, {facts['speed']:.2f}x eager's speed"),
        ("in kernels", output.duration(facts["kernels_ms"])),
        ("between them", f"{output.duration(facts['outside_kernels_ms'])}: guards, results, from region to region"),
        ("regions", f"{facts['regions']}, {output.count(len(facts['breaks']), 'place')} where one ends"),
    ]
    text = output.section(facts["target"], shown)
    for row in facts["breaks"]:
        text += "\n" + _break_text(row)
    for title, rows in _remarks(facts):
        text += "\n" + output.bold(title) + "".join(f"\n  {row}" for row in rows)
    if not facts["breaks"] and not facts["eager_regions"]:
        text += "\nNo region ends: the whole call is one program."
    return text


def _remarks(facts):
    again = [f"{r['where']}, because {r['guard']}" for r in facts["recompiles"]]
    named = [
        ("Runs eagerly", facts["eager_regions"]),
        ("Recorded again", again),
        ("Sizes compiled in", facts["specialized_sizes"]),
    ]
    return [(title, rows) for title, rows in named if rows]


def _break_text(row) -> str:
    head = f"{row['rank']}. {row['reason']}"
    times = f"{row['count']} times a call" if row["count"] > 1 else "once a call"
    lines = [
        output.bold(head),
        f"   {row['file']}:{row['line']}: {row['source']}",
        f"   {times}, about {output.duration(row['about_ms'])}",
    ]
    if row["hint"]:
        lines.append(f"   do: {row['hint']}")
    return "\n".join(lines)
