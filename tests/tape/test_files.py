# tests/tape/test_files.py
"""tests/tape/files/*.ir: tapes as somebody writes them by hand, through python -m torchbolt.opt.

; opt: --emit=graph   what it is told; each such line is one run, and the lines up to the next are about it
; check: text         what it prints has this text, behind that of the check before
; not: text           and this nowhere
; error: text         it fails with this text

What is printed of a tape that was read is the same when it is read again.
"""

from __future__ import annotations

import pathlib
import re

import pytest

from torchbolt import _C, opt

FILES = sorted((pathlib.Path(__file__).parent / "files").glob("*.ir"))


def runs(text: str) -> list[tuple[list[str], list[tuple[str, str]]]]:
    """(arguments, [(directive, text), ...]) of each run."""
    found: list[tuple[list[str], list[tuple[str, str]]]] = []
    for line in text.splitlines():
        kind, _, rest = line.removeprefix("; ").partition(": ")
        if line.startswith("; opt:"):
            found.append((rest.split(), []))
        elif line.startswith("; ") and kind in ("check", "not", "error"):
            found[-1][1].append((kind, rest))
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file(file, capsys):
    for arguments, directives in runs(file.read_text()):
        failed = opt.main([*arguments, str(file)])
        printed = capsys.readouterr()
        assert bool(failed) == any(kind == "error" for kind, _ in directives), printed.err
        assert directives, "the run tests nothing"
        at = 0
        for kind, text in directives:
            if kind == "error":
                assert text in printed.err
            elif kind == "not":
                assert text not in printed.out
            else:
                assert text in printed.out[at:], f"missing: {text}\n{printed.out}"
                at = printed.out.index(text, at) + len(text)
        if printed.out.startswith("tape"):
            assert _C._opt(printed.out, ["-"])[0] == printed.out


def test_what_calls_record_can_be_lowered():
    """A tape that was recorded, not written: its graph, its plan and its kernels."""
    import torch

    linear = torch.nn.Linear(3, 5)

    def fn(x):
        y = linear(x)
        y[0].mul_(2)
        return torch.softmax(y, -1), y + torch.tensor([1.0, 2, 3, 4, 5])

    with torch.no_grad():
        tape = _C._record_tape(fn, (torch.ones(2, 3),), list(linear.parameters()))
    assert _C._opt(tape, ["-"])[0] == tape
    graph = _C._opt(tape, ["--emit=graph", "-"])[0]
    assert graph.count(" param") == 2 and "linear(" in graph and "slice_scatter(" in graph and " const" in graph
    plan = _C._opt(tape, ["--passes=standard", "--emit=plan", "--target=cuda", "-"])[0]
    assert plan.startswith("plan @") and "library linear (" in plan and "kernel @softmax" in plan
    # Inputs have no names until a text gives them some.
    again = _C._opt(graph, ["--passes=standard", "--emit=plan", "--target=cuda", "-"])[0]
    assert re.sub(r' "in\d+"', "", again) == plan
    assert "bolt_softmax" in _C._opt(plan, ["--emit=cuda", "-"])[0]


def test_command_line(tmp_path, capsys):
    assert opt.main(["--help"]) == 0 and "tape" in capsys.readouterr().out
    assert opt.main(["--list"]) == 0 and "decompose" in capsys.readouterr().out
    assert opt.main([str(tmp_path / "missing.ir")]) == 1 and "missing.ir" in capsys.readouterr().err
    assert opt.main(["--import=no_such_module", "x.ir"]) == 1 and "no_such_module" in capsys.readouterr().err
