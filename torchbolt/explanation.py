# torchbolt/explanation.py
"""explain(): what compile() would do with a call, counted from what really happened."""

from __future__ import annotations

import asyncio
import collections
import importlib
import inspect
import json
import linecache
import re
import warnings
from dataclasses import asdict, dataclass, field
from traceback import FrameSummary

from torchbolt import _C, api, steps

_SHOWN = 10  # guards, of the hundreds that a model has
_CALLS = 5, 60  # that measure: at least, and at most as long as programs are tried beside eager

_OF_STEPS = "regions end where a compiled generator yields or a coroutine waits; what lies between is one region"


@dataclass
class BreakReason:
    """Why a region ended: the reason, where, and the user's lines (traceback.FrameSummary), innermost last.

    reason is for people and may be worded anew; cause is what kind of end it is, a name that stays (src/support/
    reasons.def lists them); id tells the ends of one explanation apart. hint: what can be done about it; may be empty.
    Columns count from 0, in bytes, as co_positions() has them; -1: not known.
    """

    reason: str
    user_stack: list
    graph_break: bool = True  # in torch not: where the function returns
    id: str = ""
    column: int = -1
    end_line: int = -1
    end_column: int = -1
    cause: str = ""
    hint: str = ""

    @property
    def file(self) -> str:
        """The file of the innermost line."""
        return self.user_stack[-1].filename if self.user_stack else ""

    @property
    def line(self) -> int:
        """The number of the innermost line."""
        return self.user_stack[-1].lineno if self.user_stack else 0

    @property
    def source(self) -> str:
        """The text of the innermost line."""
        return linecache.getline(self.file, self.line).strip() if self.user_stack else ""

    @property
    def expression(self) -> str:
        """The part of that line which ended the region; all of it where that is not known or ends on another."""
        if self.column < 0 or self.end_line != self.line:
            return self.source
        return linecache.getline(self.file, self.line).encode()[self.column : self.end_column].decode(errors="replace")

    def as_dict(self) -> dict:
        """Everything, for JSON."""
        what = ("id", "cause", "reason", "hint")
        where = ("file", "line", "column", "end_line", "end_column", "source", "expression")
        facts = {name: getattr(self, name) for name in what + where}
        stack = [{"file": f.filename, "line": f.lineno, "function": f.name} for f in self.user_stack]
        return facts | {"user_stack": stack}

    def __str__(self) -> str:
        column = f":{self.column + 1}" if self.column >= 0 else ""
        lines = [f"    {f.filename}:{f.lineno} in {f.name}" for f in self.user_stack]
        if lines:
            lines[-1] = lines[-1].replace(f":{self.line} in", f":{self.line}{column} in") + f": {self.expression}"
        return "\n".join([self.reason, *lines] + ([f"    hint: {self.hint}"] if self.hint else []))


@dataclass
class Explanation:
    """One explained call. The first block of fields has torch's names and meaning, the second is ours.

    graphs: as text, since what is compiled is no torch.fx graph (backend= gets one). ops_per_graph: the names of the
    operators in them, where those made of others are taken apart; op_count is of those that were called. plans: what
    became of the graphs, as text: kernels, library calls, memory. costs: a dict for each step that a call runs, with
    the bytes and instructions of kernels, the share of the instructions that fusing repeats, and the microseconds that
    the model of costs predicts and that were measured (None: they were not). trials: what came of programs that were
    measured beside eager. choices: which of several ways a library has for its calls was chosen by measuring them.
    """

    graphs: list = field(default_factory=list)
    graph_count: int = 0
    graph_break_count: int = 0
    break_reasons: list = field(default_factory=list)
    op_count: int = 0
    ops_per_graph: list = field(default_factory=list)
    out_guards: list = field(default_factory=list)
    compile_times: str = ""

    plans: list = field(default_factory=list)
    kernels: int = 0
    kernels_before_fusion: int = 0
    library_calls: int = 0
    extern_calls: int = 0
    bytes_moved: int = 0
    costs: list = field(default_factory=list)
    trials: list = field(default_factory=list)
    choices: list = field(default_factory=list)
    eager_regions: list = field(default_factory=list)
    no_graphs: list = field(default_factory=list)  # why, for regions that CUDA graphs were asked for
    specialized_sizes: list = field(default_factory=list)
    stage_times: dict = field(default_factory=dict)
    guard_us: float | None = None
    recompiles: list = field(default_factory=list)
    eager_calls: list = field(default_factory=list)
    regions: list = field(default_factory=list, repr=False)  # as C++ describes them, for save()

    def save(self, file, title: str = "", measured: dict | None = None) -> str:
        """Writes all of it as one page for a browser; gives its path. measured: torchbolt.reports.measured(call)."""
        return importlib.import_module("torchbolt.reports").save(self, file, title, measured)

    def to_json(self, **kwargs) -> str:
        """Everything as JSON; a break has its file, line and source text. Arguments are json.dumps's."""
        facts = asdict(self)
        del facts["regions"]  # which the fields above sum up
        facts["break_reasons"] = [b.as_dict() for b in self.break_reasons]
        return json.dumps(facts, **kwargs)

    def __str__(self) -> str:
        out = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            f"Kernels: {self.kernels} (before fusion {self.kernels_before_fusion}), "
            f"library calls: {self.library_calls}, other ATen calls: {self.extern_calls}",
            f"Bytes moved by kernels: {self.bytes_moved}",
            f"Guards: {len(self.out_guards)}"
            + (f", checked in {self.guard_us:.1f} us" if self.guard_us is not None else ""),
        ]
        out += [f"Measured: {came}" for came in self.trials]
        out += [f"Chosen: {came}" for came in self.choices]
        if self.costs:
            out += ["Steps:", *_table(self.costs)]
        out.append("Break Reasons:")
        out += [f"  Break Reason {reason.id}: {reason}" for reason in self.break_reasons]
        for again in self.recompiles:
            out.append(f"Recorded again: {again['where']}, because {again['guard']}")
        for given in self.eager_calls:
            hint = f" ({given['hint']})" if given["hint"] else ""
            out.append(f"Given to eager, {given['count']} times: {given['why']}{hint}")
        for why in self.eager_regions:
            out.append(f"Runs eagerly: {why}")
        for why in self.no_graphs:
            out.append(f"No CUDA graph: {why}")
        for why in self.specialized_sizes:
            out.append(f"Size compiled in: {why}")
        out.append("Ops per Graph:")
        out += [f"  Ops {i}: {' '.join(ops)}" for i, ops in enumerate(self.ops_per_graph, 1)]
        out.append("Out Guards:")
        out += [f"  Guard {i}: {guard}" for i, guard in enumerate(self.out_guards[:_SHOWN], 1)]
        if len(self.out_guards) > _SHOWN:
            out.append(f"  and {len(self.out_guards) - _SHOWN} more in out_guards")
        out.append(f"Compile Times: {self.compile_times}")
        return "\n".join(out)


# By column: its head, and how one of its numbers is written.
_COLUMNS = {
    "bytes": ("bytes", "{:.0f}"),
    "instructions": ("instructions", "{:.0f}"),
    "repeated": ("repeated", "{:.0%}"),
    "predicted_us": ("predicted us", "{:.1f}"),
    "measured_us": ("measured us", "{:.1f}"),
}


def _table(costs) -> list[str]:
    """Lines, as wide as they must be. What nobody measured has no column."""
    columns = {name: c for name, c in _COLUMNS.items() if any(step[name] is not None for step in costs)}
    rows = [["region", "step", *(head for head, _ in columns.values())]]
    for step in costs:
        numbers = ("" if step[name] is None else form.format(step[name]) for name, (_, form) in columns.items())
        rows.append([str(step["region"]), f"{step['kind']} {step['name']}", *numbers])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust, str.ljust, *[str.rjust] * len(columns)]
    cells = ([side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)] for row in rows)
    return ["  " + "  ".join(row).rstrip() for row in cells]


def _place(end) -> tuple:
    return (tuple(end["user_stack"]), *end["position"], end["reason"])


def breaks_of(ends) -> list[BreakReason]:
    """One for each end, in order; ends at one place for one reason have one id."""
    ids: dict[tuple, str] = {}
    out = []
    for end in ends:
        stack = [FrameSummary(file, line, name, lookup_line=False) for file, line, name in end["user_stack"]]
        _, *span = end["position"]
        name = ids.setdefault(_place(end), f"B{len(ids) + 1}")
        reason = BreakReason(end["reason"], stack, True, name, *span, end["cause"], end["hint"])
        if reason.file == steps.__file__:
            reason.hint = _OF_STEPS
        out.append(reason)
    return out


def _collect(regions) -> Explanation:
    e = Explanation()
    for r in regions:
        e.out_guards += r["guards"]
        if "ops" not in r:
            continue
        e.graphs.append(r["graph"])
        e.plans.append(r["plan"])
        e.costs += [{"region": len(e.graphs)} | step for step in r["costs"]]
        e.trials += [r["measured"]] if r["measured"] else []
        e.choices += r["choices"]
        e.ops_per_graph.append(re.findall(r"^  %\S+: .*? = (\w+)\(", r["graph"], re.M))
        e.op_count += r["ops"]
        for name in ("kernels", "kernels_before_fusion", "library_calls", "extern_calls", "bytes_moved"):
            setattr(e, name, getattr(e, name) + r[name])
        e.specialized_sizes += r["sizes_given_up"]
        if r["why_no_graph"]:
            e.no_graphs.append(r["why_no_graph"])
        if not r["compiled"]:
            e.eager_regions.append(r["why_replayed"])
        for stage, seconds in r["stage_seconds"].items():
            e.stage_times[stage] = e.stage_times.get(stage, 0.0) + seconds
    e.graph_count = len(e.graphs)
    e.compile_times = ", ".join(f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in e.stage_times.items())
    return e


def _recorded(inner, call) -> tuple[list, list]:
    """The regions and the region ends of a call. A recording that was not worth keeping (an operator raised, say) tells
    nothing of what the next call will run: then that one is made, and so on."""
    known, ends = len(inner._regions()), []
    for _ in range(4):
        recordings, ends_before = _C.stats()["recordings"], len(inner._region_ends())
        call()
        api.wait()
        regions = inner._regions()
        kept = {_place(end) for region in regions for end in region["breaks"]}
        seen = inner._region_ends()[ends_before:]
        ends += [end for end in seen if _place(end) in kept]
        lost = [end for end in seen if _place(end) not in kept]
        if _C.stats()["recordings"] == recordings or (regions and not lost):
            break
    return regions[known:] or regions, ends + lost or inner._region_ends()


def _whole(compiled, result):
    """What a compiled generator function or coroutine function does, it does when its call is over."""
    if inspect.isgeneratorfunction(compiled):
        collections.deque(result, 0)
    elif inspect.iscoroutinefunction(compiled):
        asyncio.run(result)


def _measure(inner, call, first: int) -> list:
    """The regions from `first` on, after calls that time each step."""
    least, most = _CALLS
    _C._time_steps(True)
    try:
        for made in range(most):
            if made >= least and not any(region.get("is_trial") for region in inner._regions()):
                break
            call()
            api.wait()
    finally:
        _C._time_steps(False)
    regions = inner._regions()
    return regions[first:] or regions


def explain(fn, *args, measure=False, **options):
    """explain(fn)(*args, **kwargs): calls fn once, compiled anew, and tells what was made of it.

    Options are compile's: explain(fn, dynamic=True)(x) tells which sizes the program holds for. Where a recording was
    thrown away, fn is called again until one is kept. measure: it is called some more times, really, to time each step
    and to measure programs beside eager. explain(fn, *args, **kwargs) is torch's older form.
    """

    def run(*args, **kwargs):
        compiled = api.compile(fn, **options)
        inner = api.compiled_of(compiled)
        known = len(inner._regions())
        call = lambda: _whole(compiled, compiled(*args, **kwargs))  # noqa: E731
        regions, ends = _recorded(inner, call)
        if measure:
            regions = _measure(inner, call, known)
        explanation = _collect(regions)
        explanation.break_reasons = breaks_of(ends)
        explanation.regions = regions
        explanation.graph_break_count = len(explanation.break_reasons)
        explanation.recompiles = inner._recompiles()
        explanation.eager_calls = inner._eager_calls()
        bound = () if compiled is inner else (getattr(compiled, "__self__", compiled),)
        seconds = inner._guard_seconds(*bound, *args, **kwargs)
        explanation.guard_us = seconds * 1e6 if seconds is not None else None
        return explanation

    if not args:
        return run
    warnings.warn("explain(fn, *args, **kwargs) is deprecated; use explain(fn)(*args, **kwargs)", FutureWarning, 2)
    kwargs, options = options, {}
    return run(*args, **kwargs)
