# tests/api/test_explain.py
"""explain(): torch's fields and forms, and recordings that were thrown away."""

from __future__ import annotations

import copy
import json
import traceback

import numpy as np
import pytest
import torch

import torchbolt

pytestmark = pytest.mark.usefixtures("fresh")


def broken(x, scale=2):
    y = torch.relu(x) * scale
    torchbolt.graph_break("look here")
    return y.sin() + 1


def test_what_torchs_users_read():
    seen = torchbolt.explain(broken)(torch.ones(3))
    (reason,) = seen.break_reasons
    assert (seen.graph_count, seen.graph_break_count, seen.op_count) == (2, 1, 4)
    assert "graph_break() is called: look here" in reason.reason and reason.graph_break is True
    frame = reason.user_stack[-1]
    assert isinstance(frame, traceback.FrameSummary) and frame.name == "broken"
    assert (frame.filename, frame.lineno, frame.line) == (__file__, reason.line, 'torchbolt.graph_break("look here")')
    assert (frame[0], frame[1], frame[2]) == (reason.file, reason.line, "broken")
    assert [ops[0] for ops in seen.ops_per_graph] == ["relu", "sin"]
    assert all(isinstance(op, str) for ops in seen.ops_per_graph for op in ops)
    text = str(seen)
    for section in ("Graph Count: 2", "Graph Break Count: 1", "Op Count: 4", "Break Reasons:\n  Break Reason B1: graph_br",
                    "Ops per Graph:\n  Ops 1: relu ", "Out Guards:\n  Guard 1: ", "more in out_guards\nCompile Times: "):  # fmt: skip
        assert section in text, text
    assert json.loads(seen.to_json())["break_reasons"][0]["user_stack"][-1]["function"] == "broken"
    assert copy.deepcopy(seen) == seen


def test_torchs_older_form():
    with pytest.warns(FutureWarning, match=r"explain\(fn\)\(\*args"):
        seen = torchbolt.explain(broken, torch.ones(3), scale=3)
    assert (seen.graph_count, seen.graph_break_count) == (2, 1)


class Asks:
    def __init__(self, x):
        self.x = x

    def _answer(self):
        if self.x.sum() > 0:
            return self.x + 1
        return self.x

    def __add__(self, other):
        return self._answer() + other

    def __getattr__(self, name):
        if name != "absent":
            raise AttributeError(name)
        return self._answer()

    def __contains__(self, other):
        return self._answer() is not self.x

    def __bool__(self):
        return self._answer() is not self.x

    @property
    def answer(self):
        return self._answer()


def caught(x):
    try:
        torch.add(x, torch.ones(7))
    except RuntimeError:
        pass
    return x + 1


def caught_late(x):
    y = x * 2
    torchbolt.graph_break()
    if 3 in Asks(y):
        y = y + 1
    return y * 2


@pytest.mark.parametrize(
    "fn, graphs, breaks",
    [
        (caught, 2, ["aten::add raised here"]),
        (lambda x: Asks(x).answer * 2, 1, ["aten::is_nonzero"]),
        (lambda x: (Asks(x) + 1) * 2, 2, ["aten::is_nonzero"]),
        (lambda x: Asks(x).absent * 2, 1, ["aten::is_nonzero"]),
        (lambda x: x * 2 if 3 in Asks(x) else x * 3, 1, ["aten::is_nonzero"]),
        (lambda x: x * 2 if Asks(x) else x * 3, 1, ["aten::is_nonzero"]),
        (caught_late, 2, ["graph_break() is called", "aten::is_nonzero"]),
    ],
    ids="caught property add getattr contains bool late".split(),
)
def test_the_recording_that_is_kept_is_told(fn, graphs, breaks):
    first, second = (torchbolt.explain(fn)(torch.ones(3)) for _ in range(2))
    for seen in (first, second):
        assert seen.graph_count == graphs and seen.graph_break_count == len(breaks), seen
        assert all(why in reason.reason for why, reason in zip(breaks, seen.break_reasons, strict=True)), seen


def test_what_is_kept_at_once_is_called_once():
    calls = []

    def fn(x):
        calls.append(1)
        for _ in range(2):
            x = x * 2
            torchbolt.graph_break()
        return x

    torchbolt.explain(fn)(torch.ones(3))
    with torchbolt.set_stance("force_eager"):
        torchbolt.explain(fn)(torch.ones(3))
    assert len(calls) == 2


@torchbolt.disable(reason="of its own")
def set_apart(x):
    return x + 1


@pytest.mark.parametrize(
    "fn, cause, hint",
    [
        (lambda x: set_apart(x * 2), "disabled", "was asked for"),
        (lambda x: torch.from_numpy(np.asarray(x * 2)) + 1, "calls_unknown", "keep the computation on tensors"),
        (lambda x: int((x * 2).nonzero()[0, 0]) if x.sum() > 0 else x, "operator_ends", "on tensors"),
        (lambda x: x * next(ITERATOR), "advanced", "loop over a list"),
    ],
    ids="disabled numpy data iterator".split(),
)
def test_an_end_has_a_name_and_a_hint(fn, cause, hint):
    global ITERATOR
    ITERATOR = iter(map(float, range(10)))
    with torch.no_grad():
        first = torchbolt.explain(fn)(torch.ones(3)).break_reasons[0]
    assert first.cause == cause and hint in first.hint, first
    assert first.as_dict()["cause"] == cause
