# torchbolt/plans.py
"""The texts of a plan and of a graph -> their parts, for reports: steps, buffers, kernels, nodes.

loops/plan_text.cpp and graph/text.cpp write these texts, which are made to be read back. Sizes that are symbols stay
unknown here, and so does what is computed from them.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field

_WIDTHS = {"f64": 8, "c64": 8, "c128": 16, "i64": 8, "u64": 8, "i32": 4, "u32": 4, "f32": 4, "f16": 2, "bf16": 2}
_BUFFER = re.compile(r"^  (b\d+) = (.*?): (\w+)\[(.*?)\](.*?)$")
_LIFE = re.compile(r" steps (\d+)\.\.(\d+)")
_STEP = re.compile(r"^  (?:(\d+): )?(.+?) \((b?[\w, ]*)\) -> \((b?[\w, ]*)\)(.*?)(?:\s+# (.*))?$")
_COPY = re.compile(r"^  (?:(\d+): )?copy (b\d+) -> (b\d+)(?:\s+# (.*))?$")
_KERNEL = re.compile(r"^kernel @(\S+) .*?^}$", re.M | re.S)
_SPACE = re.compile(r"space \[(.*?)\]")
_NODE = re.compile(r"^  (%\S+): (.*?) = (\w+)\((.*?)\)(.*?)(?:\s+# (.*))?$")
_INPUT = re.compile(r"(%in\d+): (\w+\[.*?\])")
_ARITHMETIC = re.compile(r"^  %\d+ = (?!load|const|acc|index|cast)\w+", re.M)


@dataclass
class Buffer:
    id: str
    what: str  # input 0, temp @64, output 1, fold
    type: str
    bytes: int | None
    first: int = -1  # the steps that it lives in
    last: int = -1


@dataclass
class Step:
    kind: str  # kernel, contraction, library, extern, copy, pack
    name: str
    what: str  # the step's own words
    inputs: list
    outputs: list
    line: str = ""
    kernel: str = ""  # the name of its kernel
    bytes: int | None = None  # that it reads and writes
    work: int | None = None  # floating point operations
    once: bool = False  # for weights, not at each call


@dataclass
class Plan:
    buffers: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    kernels: dict = field(default_factory=dict)

    def as_dict(self) -> dict:
        return asdict(self)


def bytes_of(dtype: str, sizes: str) -> int | None:
    """Of a tensor; None where a size is a symbol."""
    dims = [part.strip() for part in sizes.split(",") if part.strip()]
    if not all(dim.isdigit() for dim in dims):
        return None
    return math.prod(map(int, dims)) * _WIDTHS.get(dtype, 1)


def _sizes(text: str) -> list[int] | None:
    dims = [part.strip().split(" ")[0] for part in text.split(",") if part.strip()]
    return [int(d) for d in dims] if all(d.isdigit() for d in dims) else None


def parse(text: str) -> Plan:
    """Of Plan's text; an empty one for a region without a plan."""
    plan = Plan(kernels={match[1]: match[0] for match in _KERNEL.finditer(text)})
    by_id, once = {}, False
    for line in text.split("\nreturn")[0].splitlines():
        once = (once or line == "fold:") and line != "run:"
        if match := _BUFFER.match(line):
            buffer = _buffer(match)
            by_id[buffer.id] = buffer
        elif match := _COPY.match(line):
            plan.steps.append(Step("copy", "copy", "copy", [match[2]], [match[3]], match[4] or "", once=once))
        elif match := _STEP.match(line):
            plan.steps.append(_step(match, once))
    plan.buffers = list(by_id.values())
    for step in plan.steps:
        step.bytes = _moved(step, by_id)
        step.work = _work(step, by_id, plan.kernels)
    return plan


def layers_left_out(graph: str) -> int:
    """Equal layers that a graph's text says once, as its first line tells (run/compiled.cpp)."""
    found = re.search(r"^# layers repeat: (\d+) more", graph, re.M)
    return int(found[1]) if found else 0


_HEADING = re.compile(r"^# (forward|backward|piece \d+)\n", re.M)


def parts_of(text: str) -> dict[str, str]:
    """Of a region's graph or plan: its forward and backward half, and the pieces of a long one, each with its text."""
    before, *rest = _HEADING.split(text)
    parts, piece = {"": before} if before.strip() or not rest else {}, ""
    for name, body in zip(rest[::2], rest[1::2], strict=True):
        if name.startswith("piece"):
            piece, name = name, ""
        if body.strip():
            parts[", ".join(filter(None, (piece, name)))] = body
    return parts


def _buffer(match) -> Buffer:
    id, what, dtype, sizes, rest = match.groups()
    life = _LIFE.search(rest)
    first, last = (int(life[1]), int(life[2])) if life else (-1, -1)
    return Buffer(id, what, f"{dtype}[{sizes}]", bytes_of(dtype, sizes), first, last)


def _step(match, once: bool) -> Step:
    _, what, inputs, outputs, rest, line = match.groups()
    words = re.sub(r"^\w+:\d+ ", "", what)  # the device, where it is not the processor
    kind = words.split()[0]
    kernel = re.search(r"@(\S+)", words)
    name = kernel[1] if kernel else words.split()[-1]
    if kind == "extern" and (called := re.search(r'name="([^"]+)"', rest)):
        name = called[1]
    ids = [[b.strip() for b in part.split(",") if b.strip()] for part in (inputs, outputs)]
    return Step(kind, name, words, *ids, line or "", kernel[1] if kernel else "", once=once)


def _moved(step: Step, buffers: dict) -> int | None:
    sizes = [buffers[id].bytes for id in dict.fromkeys(step.inputs + step.outputs) if id in buffers]
    return None if None in sizes else sum(sizes)


def _work(step: Step, buffers: dict, kernels: dict) -> int | None:
    """What a person would count: two for each element of a product, one for each operation of a kernel."""
    text = kernels.get(step.kernel, "")
    space = _SPACE.search(text)
    dims = _sizes(space[1]) if space else None
    pointwise = math.prod(dims) * len(_ARITHMETIC.findall(text)) if dims else None
    if step.kind == "kernel":
        return pointwise
    if step.kind in ("contraction", "library") and len(step.inputs) > 1 and step.outputs:
        left, right, out = (_sizes_of(buffers.get(id)) for id in (*step.inputs[:2], step.outputs[0]))
        if left and right and out:
            return 2 * math.prod(out) * _depth(step.what, left, right, out) + (pointwise or 0)
    return None


def _sizes_of(buffer: Buffer | None) -> list[int] | None:
    return _sizes(buffer.type.split("[")[1].split("]")[0]) if buffer else None


def _depth(what: str, left: list[int], right: list[int], out: list[int]) -> int:
    """How many products are summed up for one element of the result. (Packed weights are one row of numbers.)"""
    if "conv" in what and len(out) > 1:
        return max(1, math.prod(right) // max(1, out[1]))
    if "sdpa" in what and len(right) > 1:
        return 2 * right[-2]
    return left[-1]


def nodes_of(graph: str) -> list[dict]:
    """Of a graph's text, in order: id, operation, type, inputs, line."""
    head, _, body = graph.partition("\n")
    found = [dict(id=id, op="input", type=type, inputs=[], line="") for id, type in _INPUT.findall(head)]
    for line in body.splitlines():
        if match := _NODE.match(line):
            id, type, op, inputs, attributes, where = match.groups()
            names = re.findall(r"%\w+", inputs)
            found.append(dict(id=id, op=op, type=type, inputs=names, line=where or "", more=attributes.strip()))
    return found
