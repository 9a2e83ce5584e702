# torchbolt/reports.py
"""What was compiled -> one page for a browser, which needs nothing else: reports.html, with the facts as JSON in it.

An explanation has one page (Explanation.save); so has all that a process compiled so far (torchbolt.report()). Where
options={"trace.enabled": True} was asked for, the latter is written beside the texts of the stages when the process
ends. Times of kernels are there if somebody measured them (measured), by torch.profiler, which sees each by its name;
on a GPU it would see only their launches, so there are none.
"""

from __future__ import annotations

import atexit
import json
import linecache
import os
import pathlib
import platform
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

from torchbolt import _C, _build, api, explanation, plans

_TEMPLATE = pathlib.Path(__file__).with_name("reports.html")
_AROUND = 3  # lines of source above and below a region's end
_COPIED = 1 << 25  # bytes, more than caches hold


class _Lines:
    """Texts that are said often -> numbers, so that a page says each once."""

    def __init__(self):
        self.texts: list[str] = []
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.texts)
            self.texts.append(text)
        return self._known[text]


def _parts(region: dict, lines: _Lines, name: str) -> list[dict]:
    """A region, or its forward and backward and its pieces: each has a plan of its own. The first part has what is
    known of the whole."""
    plans_of, graphs = plans.parts_of(region.get("plan", "")), plans.parts_of(region.get("graph", ""))
    kept = ("ops", "kernels", "kernels_before_fusion", "library_calls", "extern_calls", "bytes_moved", "compiled")
    facts = {key: region.get(key) for key in (*kept, "from_cache", "why_replayed", "measured", "stage_seconds")}
    facts["guards"] = region["guards"]
    parts = []
    for which in dict.fromkeys([*plans_of, *graphs]):
        parts.append(_part(plans_of.get(which, ""), graphs.get(which, ""), lines))
        parts[-1] |= facts | {"name": name + (f", {which}" if which else "")}
        facts = {"guards": [], "compiled": region.get("compiled")}
    _add_costs([step for part in parts for step in part["steps"]], region.get("costs", []))
    return parts


def _part(text: str, graph: str, lines: _Lines) -> dict:
    plan, nodes = plans.parse(text), plans.nodes_of(graph)
    for node in nodes:
        node["line"] = lines(node["line"])
    return {
        "nodes": nodes,
        "repeated": plans.layers_left_out(graph),
        "steps": [vars(step) | {"line": lines(step.line)} for step in plan.steps],
        "buffers": [vars(buffer) for buffer in plan.buffers],
        "sources": plan.kernels,
        "schedules": _schedules(text),
    }


def _add_costs(steps: list[dict], costs: list[dict]) -> None:
    """What the model of costs says of each step that calls run, and what was measured; both are in order."""
    running = [step for step in steps if not step["once"]]
    if len(running) == len(costs):
        for step, cost in zip(running, costs, strict=True):
            step["cost"] = {
                name: cost[name] for name in ("bytes", "instructions", "repeated", "predicted_us", "measured_us")
            }


def _schedules(plan: str) -> str:
    """How the processor goes through each kernel; nothing where the plan is for another device."""
    if not plan or "cuda" in plan:
        return ""
    try:
        return _C._opt(plan, ["--emit=schedule", "-"])[0]
    except ValueError:
        return ""


def _source(reason) -> dict:
    """The user's lines around a region's end."""
    first = max(1, reason.line - _AROUND)
    shown = [linecache.getline(reason.file, n).rstrip("\n") for n in range(first, reason.line + _AROUND + 1)]
    return reason.as_dict() | {"around": shown, "around_from": first, "text": str(reason)}


def _facts(title, regions, breaks, recompiles, eager_calls, measured) -> dict:
    lines = _Lines()
    parts = [part for name, region in regions for part in _parts(region, lines, name)]
    return {
        "title": title,
        "made": time.strftime("%Y-%m-%d %H:%M:%S"),
        "versions": f"torchbolt {_build.version}, torch {torch.__version__}, Python {platform.python_version()}",
        "regions": parts,
        "breaks": [_source(reason) for reason in breaks],
        "recompiles": recompiles,
        "eager_calls": eager_calls,
        "measured": _matched(parts, measured) if not any(" cuda:" in r.get("plan", "") for _, r in regions) else None,
        "lines": lines.texts,
    }


def write(file, facts: dict) -> str:
    """The page, whose path is given back."""
    text = json.dumps(facts, separators=(",", ":")).replace("</", "<\\/")
    page = _TEMPLATE.read_text().replace("/*FACTS*/null", text, 1)
    path = pathlib.Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page)
    return str(path.resolve())


def save(seen, file, title: str = "", measured: dict | None = None) -> str:
    """An explanation's page."""
    regions = [(f"region {i}", region) for i, region in enumerate(seen.regions)]
    facts = _facts(title or "explain", regions, seen.break_reasons, seen.recompiles, seen.eager_calls, measured)
    return write(file, facts)


def report(file="torchbolt_report.html") -> str:
    """Writes a page of everything compiled in this process so far; gives its path."""
    api.wait()
    return _written(file, list(api._all))


def of_warm(file, compiled, title: str, measured: dict) -> str:
    """A page of all that one compiled callable came to before the call that was measured: a training step has other
    regions once its optimizer has state."""
    return _written(file, [api.compiled_of(compiled)], title, measured)


def _written(file, compiled, title: str = "What this process compiled", measured: dict | None = None) -> str:
    regions, ends, recompiles, eager_calls = [], [], [], []
    for each in sorted(compiled, key=api.name_of):
        name = "" if measured else f"{api.name_of(each)}, "
        regions += [(f"{name}region {i}", region) for i, region in enumerate(each._regions())]
        ends += each._region_ends()
        recompiles += each._recompiles()
        eager_calls += each._eager_calls()
    return write(file, _facts(title, regions, explanation.breaks_of(ends), recompiles, eager_calls, measured))


def at_exit(folder: str, compiled) -> None:
    """A page in a trace's folder when the process ends, of what is traced into it."""
    if folder not in _traced:
        _traced[folder] = []
        atexit.register(_write_trace, folder)
    _traced[folder].append(compiled)  # kept alive, as tracing is asked for to look at it


def _write_trace(folder: str) -> None:
    _C.wait()
    if any(compiled._regions() for compiled in _traced[folder]):
        file = os.path.join(folder, "report.html")
        try:
            _written(file, _traced[folder])
        except OSError as error:  # as with the trace's other files (support/trace.cpp)
            print(f"torchbolt: cannot write the report {file}: {error.strerror}", file=sys.stderr)


_traced: dict[str, list] = {}


# ---- times ----


def measured(call, calls: int = 3) -> dict:
    """Of `call`, which is warm: its kernels in order, each with its beginning and its duration in microseconds (the
    best of some calls), and what this machine reaches at most."""
    best = None
    for _ in range(calls):
        with profile(activities=[ProfilerActivity.CPU]) as watched:
            call()
        ours = sorted((e for e in watched.events() if e.name.startswith("torchbolt::")), key=_begin)
        whole = list(watched.events())
        if not ours:
            break
        start = min(map(_begin, whole))
        events = [(e.name.removeprefix("torchbolt::"), _begin(e) - start, e.time_range.elapsed_us()) for e in ours]
        if best is None or _total(events) < _total(best):
            best = events
    return {"events": best or [], "limits": limits()}


def _begin(event) -> float:
    return event.time_range.start


def _total(events) -> float:
    return sum(duration for _, _, duration in events)


def limits() -> dict:
    """Bytes and floating point operations a second that torch reaches here: a large copy, a large product."""
    source, target = (torch.empty(_COPIED, dtype=torch.uint8) for _ in range(2))
    a = torch.randn(512, 512)
    return {
        "bytes": 2 * _COPIED / _best(lambda: target.copy_(source)),
        "work": 2 * 512**3 / _best(lambda: a @ a),
    }


def _best(call, times: int = 5) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def _matched(regions: list[dict], seen: dict | None) -> dict | None:
    """Finds each event's region and step: the steps of a region come one after another, by their names."""
    if not seen or not seen["events"]:
        return None
    rows = [[(i, s["name"]) for i, s in enumerate(r["steps"]) if not s["once"]] for r in regions]
    at, events, out = 0, seen["events"], []
    while at < len(events):
        found = ((k, _taken(row, events, at)) for k, row in enumerate(rows))
        region, taken = next(((k, taken) for k, taken in found if taken), (None, [None]))
        for i, step in enumerate(taken):
            _, begin, duration = events[at + i]
            out.append([region, step, begin, duration])
        at += len(taken)
    return {"events": out, "names": [name for name, _, _ in events], "limits": seen["limits"]}


def _taken(row, events, at: int) -> list[int]:
    """The step of each event from `at` on, if they are those of `row`; none: they are not. What is written back into
    inputs is one event for several copies."""
    taken, before = [], ""
    for step, name in row:
        following = events[at + len(taken)][0] if at + len(taken) < len(events) else ""
        if name == following:
            taken.append(step)
        elif not name == before == "copy":
            return []
        before = name
    return taken
