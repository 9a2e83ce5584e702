# tests/observe/test_region_end.py
"""Where a region must end, it says why, and the call still gives its own result."""

import time

import torch
from helper import Seen


def test_unknown_c_function_ends_the_region():
    def run(x):
        y = x + 1
        t = time.clock_gettime(0)
        return y, t > 0

    seen = Seen(run, torch.ones(2))
    assert seen.facts["end"] == "broke"
    assert "time.clock_gettime" in seen.facts["breaks"][0]
    assert seen.result[1] is True


def test_data_given_to_python_ends_the_region():
    def run(x):
        return sum((x + 1).tolist())

    seen = Seen(run, torch.ones(2))
    assert seen.facts["end"] == "broke"
    assert seen.result == 4.0


def test_python_run_by_c_is_not_trusted():
    import re

    def run(text):
        return re.sub("a", lambda m: m.group().upper(), text)

    seen = Seen(run, "banana")
    assert seen.result == "bAnAnA"
    assert seen.facts["end"] == "broke" or seen.facts["unsound"]


def test_callbacks_come_back_into_the_interpreter():
    scale = {"k": -1}

    def run(items):
        return sorted(items, key=lambda v: v * scale["k"])

    seen = Seen(run, [1, 3, 2]).sound()
    assert seen.result == [3, 2, 1]
    scale["k"] = 1
    assert not seen.again()


def test_exceptions_are_the_callers():
    def run(x):
        raise KeyError(x)

    import pytest

    with pytest.raises(KeyError):
        Seen(run, 1)
