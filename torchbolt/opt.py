# torchbolt/opt.py
"""python -m torchbolt.opt [OPTION ...] FILE: the text of a tape, graph, plan or kernels -> that of a later stage.

The same as bolt-opt (see --help), and it reads tapes too, whose operators ATen must know. `--import=MODULE` first
imports a module that registers operators of its own.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

import torch  # noqa: F401  (registers the operators)

from torchbolt import _C


def read(file: str) -> str:
    return sys.stdin.read() if file == "-" else pathlib.Path(file).read_text()


def main(arguments: list[str]) -> int:
    ours = [a for a in arguments if a.startswith("--import=")]
    rest = [a for a in arguments if a not in ours]
    files = [a for a in rest if not a.startswith("--")]
    try:
        for module in ours:
            importlib.import_module(module.removeprefix("--import="))
        text, report = _C._opt(read(files[0]) if files else "", rest)
    except (OSError, ImportError, ValueError) as error:
        print(f"torchbolt.opt: {error}", file=sys.stderr)
        return 1
    sys.stdout.write(text)
    sys.stderr.write(report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
