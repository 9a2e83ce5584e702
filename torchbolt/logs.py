# torchbolt/logs.py
"""set_logs(): what TORCHBOLT_LOGS says, from inside the program. The table of names is support/log.cpp."""

from __future__ import annotations

import logging
import os
import sys
import warnings

from torchbolt import _C
from torchbolt.options import suggest
from torchbolt.torch_names import LOGS, OF_OTHER_PARTS


def list_logs() -> dict[str, str]:
    """Names that can be logged, and what they show."""
    return _C._log_names()


def set_logs(names: str = "", **levels) -> None:
    """set_logs("graph_breaks,+recompiles") or set_logs(graph_breaks=True); neither: as the environment says.

    A name of torch's that shows nothing here is taken, with a warning that says what does.
    """
    wanted = [item.strip() for item in names.split(",") if item.strip()]
    wanted += [name if level else f"-{name}" for name, level in levels.items()]
    known = [*list_logs(), "all", "help"]
    kept = []
    for item in wanted:
        name = item.lstrip("+-")
        if name in known:
            kept.append(item)
        elif name not in LOGS:
            raise ValueError(f"torchbolt.set_logs: unknown name {item!r}." + suggest(name, [*known, *LOGS]))
        elif not item.startswith("-"):
            warnings.warn(f"torchbolt.set_logs: {name!r} shows nothing here: {LOGS[name]}", stacklevel=2)
    _C._set_logs(",".join(kept))


def follow(modules=None, **levels) -> None:
    """What torch._logging.set_logs() asks for holds for ours: booleans, and levels of Python's logging.

    As there, TORCH_LOGS goes before; names in TORCHBOLT_LOGS stay.
    """
    if "TORCH_LOGS" in os.environ:
        return
    wanted = [os.environ.get("TORCHBOLT_LOGS", "")]
    known = [*list_logs(), "all"]
    for name, level in levels.items():
        if not level or level > logging.INFO:
            continue
        if name in known:
            wanted.append(name if level is True or level > logging.DEBUG else f"+{name}")
        elif (reason := LOGS.get(name, OF_OTHER_PARTS)) != OF_OTHER_PARTS:
            warnings.warn(f"torch._logging.set_logs: {name!r} shows nothing of torchbolt: {reason}", stacklevel=3)
    _C._set_logs(",".join(filter(None, wanted)))


def answer_environment() -> None:
    """Says of names of torch's that show nothing here what does. The extension, which would call them unknown, does not
    see those of TORCHBOLT_LOGS; torch shows what it knows of its own variable."""
    for variable in ("TORCHBOLT_LOGS", "TORCH_LOGS"):
        ours, kept = variable == "TORCHBOLT_LOGS", []
        for item in filter(None, map(str.strip, os.environ.get(variable, "").split(","))):
            reason = LOGS.get(item.lstrip("+-"))
            if reason is None:
                kept.append(item)
            elif ours or reason != OF_OTHER_PARTS:
                print(f"torchbolt: {variable}: {item.lstrip('+-')!r} shows nothing here: {reason}", file=sys.stderr)
        if ours and variable in os.environ:
            os.environ[variable] = ",".join(kept)
