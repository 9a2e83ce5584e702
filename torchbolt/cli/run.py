# torchbolt/cli/run.py
"""torchbolt run SCRIPT [ARGUMENT ...]: runs a program as Python itself would, in which torch.compile means torchbolt.

The program is a file, a folder or archive with __main__, `-m MODULE`, `-c PROGRAM`, or `-` for standard input.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import runpy
import sys
import types
import zipfile

from torchbolt.cli.errors import UsageError
from torchbolt.install import install

SUMMARY = "run a script, module or program in which torch.compile means torchbolt"
_TAKES = {"-m": "MODULE", "-c": "PROGRAM"}
USAGE = "usage: torchbolt run [-m MODULE | -c PROGRAM | - | SCRIPT] [ARGUMENT ...]"


def _without_our_frames(show, started: str):
    """`show`, an excepthook, given tracebacks that begin with the program: without the frames of this package, of
    runpy, and of the file that Python was started with (the script that pip installs)."""
    folder = os.path.dirname(os.path.dirname(__file__))
    files = {os.path.join(folder, "__main__.py"), os.path.join(folder, "cli", "main.py"), __file__, started}
    files |= {"<frozen runpy>", runpy.__file__}

    def hook(kind, error, traceback):
        while traceback and traceback.tb_frame.f_code.co_filename in files:
            traceback = traceback.tb_next
        show(kind, error.with_traceback(traceback), traceback)

    return hook


def _run_source(source, name: str, file: str | None = None) -> None:
    """Runs what stands in `source` as the main module, which is there until the process ends."""
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # the module, as in Python's own; exec would put its dict there
    if file is not None:
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)


def _check_module(name: str) -> None:
    """There is one; what its packages raise as they are imported is the program's."""
    try:
        found = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        found = False
    except (ImportError, ValueError):
        found = False
    if not found:
        raise UsageError(f"run -m: no module {name!r} here or among the installed ones")


def _run_path(path: str) -> None:
    if not os.path.exists(path):
        what = "no option" if path.startswith("-") else "no file"
        raise UsageError(f"run: {what} {path!r}; {USAGE}")
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, "__main__.py")):
        raise UsageError(f"run: {path!r} is a folder without a __main__.py")
    whole = os.path.abspath(path)
    if os.path.isdir(path) or path.endswith(".pyc") or zipfile.is_zipfile(path):
        runpy.run_path(path, run_name="__main__")
        return
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    with io.open_code(whole) as file:
        source = file.read()
    _run_source(source, whole, whole)


def main(arguments: list[str]) -> int:
    """Runs the program; an exception or exit of its own ends the process as it would without us."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{USAGE}\n\n{__doc__.strip()}")
        return 0 if arguments else 2
    if arguments[0] in ("-m", "-c") and len(arguments) < 2:
        raise UsageError(f"run {arguments[0]} takes a {_TAKES[arguments[0]]}; {USAGE}")
    install()
    started = os.path.abspath(sys.argv[0])
    sys.excepthook = _without_our_frames(sys.excepthook, started)
    sys.argv = arguments
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        _check_module(arguments[1])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0] = ""
        _run_source(arguments[1], "<string>")
    elif arguments[0] == "-":
        sys.path[0] = ""
        _run_source(sys.stdin.buffer.read(), "<stdin>")
    else:
        _run_path(arguments[0])
    return 0
