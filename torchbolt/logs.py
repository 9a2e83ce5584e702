# torchbolt/logs.py
"""set_logs(): what TORCHBOLT_LOGS says, from inside the program. The table of names is support/log.cpp."""

from __future__ import annotations

import warnings

from torchbolt import _C
from torchbolt.options import suggest
from torchbolt.torch_names import LOGS


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
