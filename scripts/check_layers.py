"""Checks that a stage includes only earlier stages, and that the core knows neither torch nor Python.

The stages are in the order of docs/architecture.md. CMake already keeps LLVM's headers to codegen/cpu.
"""

import re
import sys
from pathlib import Path

CORE = ["support", "cache", "graph", "loops", "codegen/common", "codegen/cpu", "codegen/cuda", "device/driver"]
EXTENSION = ["interp", "guard", "observe", "record", "lower", "device", "run", "compile", "session"]
# Both code generators come after loops, but neither may know the other.
FORBIDDEN = {"codegen/cpu": {"codegen/cuda"}, "codegen/cuda": {"codegen/cpu"}}
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
    return set(order[: order.index(stage) + 1]) - FORBIDDEN.get(stage, set())


def complaints(file: Path):
    stage = stage_of(file.relative_to(SRC).as_posix())
    if stage is None:
        return
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not (match := INCLUDE.match(line)):
            continue
        target = stage_of(match[2])
        where = f"{file.relative_to(SRC.parent)}:{number}: "
        if target and target not in allowed(stage):
            yield f"{where}{stage} may not include the later stage {target}"
        if stage in CORE and FOREIGN.match(match[2]):
            yield f"{where}the core may not include {match[2]}"


def main() -> int:
    files = sorted(file for suffix in ("*.h", "*.cpp", "*.def") for file in SRC.rglob(suffix))
    found = [line for file in files for line in complaints(file)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
