# tests/end_to_end/test_frames_kept.py
"""Objects of running frames that live across the end of a region: they tell of the frame as it goes on."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

import torchbolt

ENDS = torchbolt.graph_break


def lines(x):
    frame = sys._getframe()
    x = x * 2
    first = frame.f_lineno
    ENDS()
    second = frame.f_lineno
    x = x + 1
    ENDS()
    x = x + 1
    return x, first, second, frame.f_lineno


def variables(x):
    frame = inspect.currentframe()
    unread = x * 2
    ENDS()
    y = x + 1
    ENDS()
    y = y * 2
    return sorted(frame.f_locals), frame.f_locals["y"], frame.f_locals["unread"]


def itself(x):
    frame = sys._getframe()
    x = x * 2
    ENDS()
    x = x + 1
    return x, frame is sys._getframe(), frame.f_code.co_name, frame.f_back is sys._getframe(1)


def callers_line(x):
    frame = sys._getframe(1)
    x = x * 2
    ENDS()
    x = x + 1
    return frame.f_lineno, frame.f_code.co_name, x


def called_twice(x):
    first = callers_line(x)
    second = callers_line(first[-1])
    return first, second


@pytest.mark.parametrize("function", [lines, variables, itself, called_twice], ids=lambda f: f.__name__)
def test_a_frame_tells_of_the_run_as_it_goes_on(function):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for _ in range(5):
        x = torch.randn(3)
        assert str(compiled(x)) == str(function(x))
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_frame_that_is_returned_tells_where_it_ended():
    def run(x):
        x = x * 2
        frame = sys._getframe()
        ENDS()
        y = x + 1
        ENDS()
        y = y + 2
        return y, frame

    def told(outcome):
        y, frame = outcome
        return str(y), frame.f_lineno, str({**frame.f_locals, "frame": None})

    torchbolt.reset()
    compiled = torchbolt.compile(run)
    for _ in range(5):
        x = torch.randn(3)
        assert told(compiled(x)) == told(run(x))
