"""Rows of words -> text for a terminal."""

from __future__ import annotations

import sys


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def dim(text: str) -> str:
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text


def rows(pairs) -> str:
    """Two columns: names, and what is to be said of each."""
    pairs = [(name, str(value)) for name, value in pairs]
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"  {name:{width}}  {value}" for name, value in pairs)


def section(title: str, pairs) -> str:
    return f"{bold(title)}\n{rows(pairs)}"


def size(count: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def duration(ms: float) -> str:
    """Milliseconds as people write them."""
    if ms < 1:
        return f"{ms * 1e3:.3g} us"
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1e3:.3g} s"


def yes(good: bool) -> str:
    return "ok" if good else "NO"
