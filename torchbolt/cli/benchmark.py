# torchbolt/cli/benchmark.py
"""Measures TARGET in eager and compiled: the first call, the warm-up, the steady state, kernels before and after
fusion, errors and memory. Then checks what one should before claiming a win: the same results, fewer kernels, a steady
state (nothing is compiled again, and the times do not spread unless eager's do, too: then it is the machine). The exit
code is 1 if one of the three does not hold.
"""

from __future__ import annotations

from torchbolt import _C, api, explanation
from torchbolt.cli import compare, measure, output
from torchbolt.cli import target as targets
from torchbolt.cli.state import seeded

SUMMARY = "eager against compiled: first call, steady state, kernels, error, memory"
TAKES_TARGET = True
_SPREAD = 0.5  # of the median; the middle half of steady times lies within it
_WARM_UP = 3  # calls between the first and the steady state: weights are packed in the second


def arguments(parser) -> None:
    targets.arguments(parser, or_demo=True)
    targets.add_seconds(parser, 1.0, "each of the two")


def main(args):
    """(facts, text, exit code)."""
    target = targets.of(args)
    facts = measured(target, args.seconds)
    return facts, _text(facts), 0 if all(check["holds"] for check in facts["checks"].values()) else 1


def measured(target, seconds: float) -> dict:
    """All that is to be said of one target."""
    with targets.told(target):
        facts, compiled, expected = _first_calls(target)
    before = api.stats()
    eager = measure.synchronised(target.call)
    ours = measure.synchronised(lambda: target.call(compiled))
    times = measure.rounds({"eager": eager, "torchbolt": ours}, seconds)
    facts["steady"] = {name: measure.summary(taken) for name, taken in times.items()}
    facts["speed"] = facts["steady"]["eager"]["ms"] / facts["steady"]["torchbolt"]["ms"]
    facts["steady"]["recordings"] = api.stats()["recordings"] - before["recordings"]
    facts["error"] = compare.verdict(target, expected, seeded(target, compiled))
    facts["memory_mb"] = _memory(compiled, eager, ours)
    facts["kernels"] = _kernels(target)
    facts["checks"] = _checks(facts)
    return facts


def _first_calls(target):
    """Eager's, torchbolt's, and the calls until the steady state begins."""
    expected = seeded(target)  # the first call also makes what torch makes when it is first needed
    _, eager_ms = measure.once(measure.synchronised(target.call))
    compiled = target.compiled()
    call = measure.synchronised(lambda: target.call(compiled))
    first = measure.once(call)[1]
    api.wait()
    warm_up = [measure.once(call)[1] for _ in range(_WARM_UP)]
    facts = {"target": target.name, "first_call_ms": first, "eager_call_ms": eager_ms, "warm_up_ms": warm_up}
    return facts, compiled, expected


def _memory(compiled, eager, ours) -> dict:
    def forget():
        api.compiled_of(compiled)._clear()
        _C._give_back_results()

    return measure.peaks(eager, ours, forget)


def _kernels(target) -> dict:
    with_reasons = target.call(explanation.explain(target.fn, **target.options))
    return {
        "before_fusion": with_reasons.kernels_before_fusion,
        "after": with_reasons.kernels,
        "library_calls": with_reasons.library_calls,
        "aten_calls": with_reasons.extern_calls,
        "operators": with_reasons.op_count,
        "regions": with_reasons.graph_count,
        "breaks": with_reasons.graph_break_count,
        "eager_regions": with_reasons.eager_regions,
    }


def _checks(facts) -> dict:
    """The three things: name -> whether it holds, and what was seen."""
    kernels, steady = facts["kernels"], facts["steady"]
    launches = kernels["after"] + kernels["library_calls"] + kernels["aten_calls"]
    fewer = 0 < launches < max(kernels["operators"], kernels["before_fusion"])
    if kernels["eager_regions"]:
        why_fewer = f"runs eagerly: {kernels['eager_regions'][0]}"
    else:
        operators = output.count(kernels["operators"], "operator")
        why_fewer = f"{output.count(launches, 'launch', 'es')} for {operators}"
    spread, of_eager = (_spread(steady[name]) for name in ("torchbolt", "eager"))
    return {
        "same results": {"holds": facts["error"]["same"], "seen": facts["error"]["why"] or _error_text(facts["error"])},
        "fewer kernels": {"holds": fewer and not kernels["eager_regions"], "seen": why_fewer},
        "steady state": {
            "holds": steady["recordings"] == 0 and spread < max(_SPREAD, 2 * of_eager),
            "seen": f"{steady['recordings']} recordings while measuring, the middle half spreads by {spread:.0%}, "
            f"eager's by {of_eager:.0%}",
        },
    }


def _error_text(error) -> str:
    if "error" in error:
        return f"error against float64 {error['error']:.2e}, eager's {error['error_eager']:.2e}"
    return f"difference from eager {error['difference']:.2e}, allowed {error['allowed']:.2e}"


def _text(facts) -> str:
    steady, kernels, memory = facts["steady"], facts["kernels"], facts["memory_mb"]
    kept = f" (kept between calls: {_mb(memory['kept'])})"
    shown = [
        ("first call", f"{output.duration(facts['first_call_ms'])} (eager {output.duration(facts['eager_call_ms'])})"),
        ("warm-up", ", ".join(map(output.duration, facts["warm_up_ms"]))),
        *((f"steady, {name}", _spread_text(steady[name])) for name in ("eager", "torchbolt")),
        ("speed over eager", f"{facts['speed']:.2f}x"),
        ("kernels", f"{kernels['before_fusion']} before fusion, {kernels['after']} after"),
        ("other calls", f"{kernels['library_calls']} of libraries, {kernels['aten_calls']} of ATen"),
        ("regions", f"{kernels['regions']}, {output.count(kernels['breaks'], 'break')}"),
        ("peak memory", ", ".join(f"{name} {_mb(memory[name])}" for name in ("eager", "torchbolt")) + kept),
    ]
    checks = [(name, f"{output.yes(check['holds'])}: {check['seen']}") for name, check in facts["checks"].items()]
    return output.section(facts["target"], shown) + "\n" + output.section("Before claiming a win", checks)


def _mb(mb) -> str:
    return "unknown" if mb is None else f"{mb:.1f} MB" if mb >= 0.1 else "under 0.1 MB"


def _spread(row) -> float:
    return (row["ms_high"] - row["ms_low"]) / row["ms"]


def _spread_text(row) -> str:
    low, high = output.duration(row["ms_low"]), output.duration(row["ms_high"])
    return f"{output.duration(row['ms'])} (half of {row['calls']} calls within {low} to {high})"
