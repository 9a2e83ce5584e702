# torchbolt/cli/output.py
"""Rows of words -> text for a terminal. What the target prints itself goes aside, to standard error."""

from __future__ import annotations

import contextlib
import os
import sys

from torchbolt.cli.errors import UsageError

_aside: list = []  # the stream in the place of sys.stdout, while there is one


@contextlib.contextmanager
def aside():
    """sys.stdout is standard error meanwhile: standard output is the answer's. It is a stream of the same kind, so the
    target's prints are compiled as they would be."""
    with open(os.dup(sys.__stderr__.fileno()), "w", encoding="utf-8", errors="replace") as stream:
        _aside.append(stream)
        try:
            with contextlib.redirect_stdout(stream):
                yield
        finally:
            _aside.pop()


@contextlib.contextmanager
def silence():
    """Nothing that is printed aside is seen, for calls that are repeated to be measured. The stream stays the same."""
    if not _aside:
        yield
        return
    stream = _aside[-1]
    stream.flush()
    before, nowhere = os.dup(stream.fileno()), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    try:
        yield
    finally:
        stream.flush()
        os.dup2(before, stream.fileno())
        os.close(before)
        os.close(nowhere)


@contextlib.contextmanager
def writing(file: str):
    """A file that cannot be written is told in one line."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error


def _is_terminal() -> bool:
    return sys.__stdout__ is not None and sys.__stdout__.isatty()  # which the answer goes to


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if _is_terminal() else text


def dim(text: str) -> str:
    return f"\033[2m{text}\033[0m" if _is_terminal() else text


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


def count(number: int, what: str, ending: str = "s") -> str:
    """1 break, 2 breaks."""
    return f"{number} {what}" + ("" if number == 1 else ending)


def yes(good: bool) -> str:
    return "ok" if good else "NO"
