# torchbolt/cli/estimate.py
"""What compiling TARGET would gain, with reasons, without generating any code.

One eager call is watched operator by operator, and the call is recorded and planned: how many kernels would there be,
what would they compute, how many bytes would they move? A step is expected to take what its bytes take at the speed of
a large copy, what its operations take at the speed of a large product, or a launch, whichever is most; an operator of
torch's that is left as it is, what it took eager; an end of a region, what going from one to the next takes. --compare
compiles after all, and says how far off that was.
"""

from __future__ import annotations

import collections
import contextlib
import statistics

import torch
from torch.profiler import ProfilerActivity, profile

from torchbolt import _C, explanation, plans, reports
from torchbolt.cli import estimate_page, measure, output
from torchbolt.cli import target as targets

SUMMARY = "the speed-up to expect, with reasons, without compiling"
TAKES_TARGET = True

# Of eager's operators: those in which a library computes products, convolutions or attention.
_LIBRARY = ("mm", "conv", "linear", "attention", "matmul", "baddbmm", "einsum", "lstm", "gru", "mkldnn", "onednn")
_LAUNCH_US = 0.8  # of a kernel of ours, without its work
_CALL_US = 6.0  # guards and results of a call
_END_US = 9.0  # from one region to the next, through the interpreter
_REACHED = 0.45  # of the speed of a large product, by products as models have them


def arguments(parser) -> None:
    targets.arguments(parser)
    targets.add_seconds(parser, 0.3, "eager")
    parser.add_argument("--compare", action="store_true", help="compile, too, and say how far off the estimate was")
    parser.add_argument("--html", metavar="FILE", help="write a page of it to this file")


def main(args):
    """(facts, text, exit code)."""
    target = targets.of(args)
    with targets.told(target):
        facts = estimated(target, args.seconds)
        if args.compare:
            facts["came_true"] = came_true(target, args.seconds, facts)
    text = _text(facts)
    if args.html:
        with output.writing(args.html):
            facts["html"] = estimate_page.write(args.html, facts)
        text += f"\nPage: {facts['html']}"
    return facts, text, 0


def estimated(target, seconds: float) -> dict:
    eager = measure.synchronised(target.call)
    for _ in range(2):
        eager()
    eager_us = min(measure.rounds({"eager": eager}, seconds)["eager"]) * 1e3  # the best, as the limits are
    watched = _watched(eager)
    # What the profiler adds is taken off in proportion.
    scale = min(1.0, eager_us / max(watched["all_us"], 1e-9))
    library_us = watched["library_us"] * scale
    launches_us = min(eager_us, watched["operators"] * _operator_us())
    with _without_code():  # neither by somebody else nor with measurements of its own
        how = {name: value for name, value in target.options.items() if name not in ("backend", "mode")}
        seen = target.call(explanation.explain(target.fn, **how))
    took = {name: us * scale for name, us in watched["each_us"].items()}
    planned = _planned(seen, reports.limits(), took)
    expected_us = planned["steps_us"] + seen.graph_break_count * _END_US + _CALL_US
    return {
        "target": target.name,
        "eager_us": eager_us,
        "expected_us": expected_us,
        "speed": eager_us / expected_us,
        "operators": watched["operators"],
        "library_share": min(1.0, library_us / eager_us),
        "launch_share": launches_us / eager_us,
        "breaks": seen.graph_break_count,
        "eager_regions": seen.eager_regions,
        **planned,
    }


def _watched(call) -> dict:
    """One eager call: outermost operators, the time in those of libraries, and what each takes on average."""
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        call()
    events = [e for e in watched.events() if e.name.startswith("aten::")]
    outer = [e for e in events if e.cpu_parent is None or not e.cpu_parent.name.startswith("aten::")]
    ours = [e for e in events if _is_library(e.name) and not _below_library(e)]
    times = collections.defaultdict(list)
    for event in events:
        times[event.name].append(event.time_range.elapsed_us())
    return {
        "each_us": {name: statistics.mean(taken) for name, taken in times.items()},
        "operators": len(outer),
        "all_us": sum(e.time_range.elapsed_us() for e in outer),
        "library_us": sum(e.time_range.elapsed_us() for e in ours),
    }


def _is_library(name: str) -> bool:
    return any(part in name for part in _LIBRARY)


def _below_library(event) -> bool:
    parent = event.cpu_parent
    while parent is not None and not _is_library(parent.name):
        parent = parent.cpu_parent
    return parent is not None


def _operator_us() -> float:
    """Of an operator that has next to nothing to compute."""
    x = torch.ones(1)

    def many():
        for _ in range(200):
            x + 1

    many()
    return min(measure.once(many)[1] for _ in range(3)) * 1e3 / 200


def _expected_us(step, limits: dict, took: dict[str, float]) -> float:
    operator = step.name.partition(".")[0]  # profilers leave out which overload it is
    if step.kind == "extern" and operator in took:
        return took[operator]
    products = (step.work or 0) if step.kind in ("contraction", "library") else 0
    return max(
        _LAUNCH_US,
        (step.bytes or 0) / limits["bytes"] * 1e6,
        products / (_REACHED * limits["work"]) * 1e6,
    )


@contextlib.contextmanager
def _without_code():
    """What is compiled meanwhile is recorded and planned as it will be, and gets code only if it is run again."""
    _C._let_code_wait(True)
    try:
        yield
    finally:
        _C._let_code_wait(False)


def _planned(seen, limits: dict, took: dict[str, float]) -> dict:
    """What the plans come to. `took`: microseconds of operators, by name."""
    before = after = count = 0
    steps_us = 0.0
    for graph, plan in zip(seen.graphs, seen.plans, strict=True):
        graphs = plans.parts_of(graph)
        for name, text in plans.parts_of(plan).items():
            steps = _steps(text)
            moved = _kernels_bytes(steps)
            count += len(steps)
            steps_us += sum(_expected_us(s, limits, took) for s in steps)
            after += moved
            before += moved * _saved_by_fusion(graphs[name]) if moved else 0
    return {"steps": count, "bytes_unfused": before, "bytes": after, "steps_us": steps_us}


def _saved_by_fusion(graph: str) -> float:
    """How many times as many bytes kernels would move without it. Of equal layers, the graph has only the first few."""
    fused, unfused = (
        _kernels_bytes(_steps(_C._opt(graph, ["--passes=standard", "--emit=plan", *options, "-"])[0]))
        for options in ([], ["--no-fuse"])
    )
    return unfused / fused if fused else 1.0


def _steps(plan: str) -> list:
    """Of each call."""
    return [s for s in plans.parse(plan).steps if not s.once]


def _kernels_bytes(steps: list) -> int:
    return sum(s.bytes or 0 for s in steps if s.kind == "kernel")


def came_true(target, seconds: float, facts) -> dict:
    times, _ = measure.against_eager(target, seconds)
    best = {name: min(taken) * 1e3 for name, taken in times.items()}  # as what was expected is
    speed = best["eager"] / best["torchbolt"]
    return {"us": best["torchbolt"], "speed": speed, "off_by": facts["speed"] / speed - 1}


def _text(facts) -> str:
    us = lambda value: output.duration(value / 1e3)  # noqa: E731
    saved = facts["bytes_unfused"] - facts["bytes"]
    shown = [
        ("eager", f"{us(facts['eager_us'])} in {facts['operators']} operators"),
        ("expected", f"{us(facts['expected_us'])}, {facts['speed']:.2f}x eager's speed"),
        ("libraries", f"{facts['library_share']:.0%} of eager's time, in products, convolutions and attention"),
        (
            "launches",
            f"{facts['launch_share']:.0%} of eager's time calls operators; {facts['steps']} steps are left",
        ),
        ("memory", f"{output.size(saved)} of {output.size(facts['bytes_unfused'])} moved less, by fusion"),
        ("breaks", f"{output.count(facts['breaks'], 'end')} of regions, each about {us(_END_US)}"),
    ]
    shown += [("runs eagerly", why) for why in facts["eager_regions"] if "backend" not in why]
    if true := facts.get("came_true"):
        shown.append(
            ("came true", f"{us(true['us'])}, {true['speed']:.2f}x: the estimate is off by {true['off_by']:+.0%}")
        )
    return output.section(facts["target"], shown)
