"""python -m torchbolt script.py args, or -m module args: runs a program in which torch.compile means torchbolt."""

from __future__ import annotations

import os
import runpy
import sys

import torchbolt

USAGE = "usage: python -m torchbolt [-m MODULE | SCRIPT] [ARGUMENT ...]"


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if arguments else 2)
    torchbolt.install()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            sys.exit(USAGE)
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    if not os.path.exists(arguments[0]):
        sys.exit(f"python -m torchbolt: no file {arguments[0]!r}")
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))  # as Python itself would
    runpy.run_path(arguments[0], run_name="__main__")


main()
