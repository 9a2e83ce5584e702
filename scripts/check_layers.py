# scripts/check_layers.py
"""Checks that a folder includes only folders below it, that the core knows neither torch nor Python, and that few files
know which devices there are.

CORE and EXTENSION are the ladder, in the order of docs/architecture.md: no folder includes one above it, so no two
include each other. STRANGERS do not include each other at all, although one stands above the other. CMake already
keeps LLVM's headers to codegen/cpu.
"""

import re
import sys
from pathlib import Path

CORE = ["support", "cache", "graph", "loops", "codegen/common", "codegen/cpu", "codegen/cuda", "opt", "device/driver"]
EXTENSION = [
    "python",
    "device/host",
    "interp",
    "guard",
    "observe",
    "record",
    "autograd",
    "lower",
    "device",
    "run",
    "run/trained",
    "compile",
    "session",
]
# Two code generators need no knowledge of each other, nor do running code and checking what a run rested on.
STRANGERS = [("codegen/cpu", "codegen/cuda"), ("interp", "guard")]
# Who may name a device: others ask for the reason, which is a fact in graph/device_facts.h.
NAME_DEVICES = (
    *("graph/device_facts.", "graph/ir.", "graph/parser.", "graph/text."),
    *("codegen/", "opt/", "device/", "record/"),
)
# Of torch's devices, too: who is on the host asks what that means for a tensor (device/host/host.h).
ASK_TORCH = ("codegen/", "device/", "record/convert.h", "autograd/fake.cpp")
TOP = "module.cpp"  # the extension as Python sees it, above every folder
FOREIGN = re.compile(r"^(Python\.h|torch/|ATen/|c10/|internal/pycore)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

SRC = Path(__file__).resolve().parent.parent / "src"


def stage_of(path: str) -> str | None:
    """The stage that a file belongs to; compile.cpp, the map, is one of its own."""
    if path in ("compile.h", "compile.cpp"):
        return "compile"
    stages = [stage for stage in CORE + EXTENSION if path.startswith(stage + "/")]
    return max(stages, key=len, default=None)


def allowed(stage: str) -> set[str]:
    order = CORE + EXTENSION
    strangers = {other for pair in STRANGERS if stage in pair for other in pair if other != stage}
    return set(order[: order.index(stage) + 1]) - strangers


def complaints(file: Path):
    path = file.relative_to(SRC).as_posix()
    stage = stage_of(path)
    if stage is None:
        if path != TOP:
            yield f"{file.relative_to(SRC.parent)}: its folder stands nowhere on the ladder of scripts/check_layers.py"
        return
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if "DeviceKind::" in line and not path.startswith(NAME_DEVICES):
            yield f"{file.relative_to(SRC.parent)}:{number}: what differs by device is a row of graph/device_facts.h"
        if ".is_cpu()" in line and not path.startswith(ASK_TORCH):
            yield f"{file.relative_to(SRC.parent)}:{number}: what a tensor's place means is asked in device/host/host.h"
        if not (match := INCLUDE.match(line)):
            continue
        target = stage_of(match[2])
        where = f"{file.relative_to(SRC.parent)}:{number}: "
        if target and target not in allowed(stage):
            yield f"{where}{stage} may not include {target}"
        if stage in CORE and FOREIGN.match(match[2]):
            yield f"{where}the core may not include {match[2]}"


def main() -> int:
    files = sorted(file for suffix in ("*.h", "*.cpp", "*.def") for file in SRC.rglob(suffix))
    found = [line for file in files for line in complaints(file)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
