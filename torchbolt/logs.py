# torchbolt/logs.py
"""set_logs(): what TORCHBOLT_LOGS says, from inside the program. The table of names is support/log.cpp."""

from __future__ import annotations

from torchbolt import _C
from torchbolt.options import suggest


def list_logs() -> dict[str, str]:
    """Names that can be logged, and what they show."""
    return _C._log_names()


def set_logs(names: str = "", **levels) -> None:
    """set_logs("graph_breaks,+recompiles") or set_logs(graph_breaks=True); neither: as the environment says."""
    wanted = [item.strip() for item in names.split(",") if item.strip()]
    wanted += [name if level else f"-{name}" for name, level in levels.items()]
    known = [*list_logs(), "all", "help"]
    for item in wanted:
        if item.lstrip("+-") not in known:
            raise ValueError(f"torchbolt.set_logs: unknown name {item!r}." + suggest(item.lstrip("+-"), known))
    _C._set_logs(",".join(wanted))
