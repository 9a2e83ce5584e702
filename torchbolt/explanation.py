"""explain(): what compile() would do with a call, counted from what really happened."""

from __future__ import annotations

import json
import linecache
from dataclasses import asdict, dataclass, field

from torchbolt import api


@dataclass
class BreakReason:
    """Why a region ended: the reason and the user's lines, innermost last."""

    reason: str
    user_stack: list

    @property
    def source(self) -> str:
        """The text of the innermost line."""
        if not self.user_stack:
            return ""
        file, line, _ = self.user_stack[-1]
        return linecache.getline(file, line).strip()

    def __str__(self) -> str:
        lines = [f"    {file}:{line} in {function}" for file, line, function in self.user_stack]
        return "\n".join([self.reason, *lines])


@dataclass
class Explanation:
    """One explained call. The first block of fields has torch's names and meaning, the second is ours."""

    graphs: list = field(default_factory=list)
    graph_count: int = 0
    graph_break_count: int = 0
    break_reasons: list = field(default_factory=list)
    op_count: int = 0
    ops_per_graph: list = field(default_factory=list)
    out_guards: list = field(default_factory=list)
    compile_times: str = ""

    kernels: int = 0
    kernels_before_fusion: int = 0
    library_calls: int = 0
    extern_calls: int = 0
    bytes_moved: int = 0
    eager_regions: list = field(default_factory=list)
    specialized_sizes: list = field(default_factory=list)
    stage_times: dict = field(default_factory=dict)
    guard_us: float | None = None
    recompiles: list = field(default_factory=list)

    def to_json(self, **kwargs) -> str:
        """Everything as JSON; a break has its file, line and source text. Arguments are json.dumps's."""
        facts = asdict(self)
        facts["break_reasons"] = [
            {
                "reason": b.reason,
                "source": b.source,
                "user_stack": [{"file": f, "line": n, "function": name} for f, n, name in b.user_stack],
            }
            for b in self.break_reasons
        ]
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
        for i, reason in enumerate(self.break_reasons, 1):
            out.append(f"Break {i}: {reason}")
        for again in self.recompiles:
            out.append(f"Recorded again: {again['where']}, because {again['guard']}")
        for why in self.eager_regions:
            out.append(f"Runs eagerly: {why}")
        for why in self.specialized_sizes:
            out.append(f"Size compiled in: {why}")
        out.append(f"Compile Times: {self.compile_times}")
        return "\n".join(out)


def _collect(regions) -> Explanation:
    e = Explanation()
    for r in regions:
        e.out_guards += r["guards"]
        e.break_reasons += [BreakReason(b["reason"], b["user_stack"]) for b in r["breaks"]]
        if "ops" not in r:
            continue
        e.graphs.append(r["graph"])
        e.ops_per_graph.append(r["ops"])
        e.op_count += r["ops"]
        for name in ("kernels", "kernels_before_fusion", "library_calls", "extern_calls", "bytes_moved"):
            setattr(e, name, getattr(e, name) + r[name])
        e.specialized_sizes += r["sizes_given_up"]
        if not r["compiled"]:
            e.eager_regions.append(r["why_replayed"])
        for stage, seconds in r["stage_seconds"].items():
            e.stage_times[stage] = e.stage_times.get(stage, 0.0) + seconds
    e.graph_count = len(e.graphs)
    e.graph_break_count = len(e.break_reasons)
    e.compile_times = ", ".join(f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in e.stage_times.items())
    return e


def explain(fn, **options):
    """explain(fn)(*args, **kwargs): calls fn once, compiled anew, and tells what was made of it.

    Options are compile's: explain(fn, dynamic=True)(x) tells which sizes the program holds for.
    """

    def run(*args, **kwargs):
        compiled = api.compile(fn, **options)
        inner = api.compiled_of(compiled)
        before = len(inner._regions())
        compiled(*args, **kwargs)
        api.wait()
        explanation = _collect(inner._regions()[before:] or inner._regions())
        explanation.recompiles = inner._recompiles()
        bound = () if compiled is inner else (getattr(compiled, "__self__", compiled),)
        seconds = inner._guard_seconds(*bound, *args, **kwargs)
        explanation.guard_us = seconds * 1e6 if seconds is not None else None
        return explanation

    return run
