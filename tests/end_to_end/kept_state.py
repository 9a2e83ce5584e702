# tests/end_to_end/kept_state.py
"""A program that keeps state from call to call, beside eager."""

from __future__ import annotations

import collections
import copy
from types import SimpleNamespace as State

import torch

import torchbolt


def shown(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value), [shown(each) for each in value], getattr(value, "maxlen", None)
    if isinstance(value, dict):
        return type(value), [(key, shown(each)) for key, each in value.items()]
    if isinstance(value, set):
        return type(value), list(value)
    return value


def check(fn, state, calls, between=lambda state, i: None):
    """Which of the calls recorded, having compared results and what is left with eager's."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    mine, eagers = State(**copy.deepcopy(state)), State(**copy.deepcopy(state))
    records = ""
    for i in range(calls):
        x = torch.arange(3.0) + i
        between(mine, i), between(eagers, i)
        before = torchbolt.stats()["recordings"]
        assert shown(compiled(x, mine)) == shown(fn(x, eagers)), i
        records += "1" if torchbolt.stats()["recordings"] > before else "."
        assert shown(vars(mine)) == shown(vars(eagers)), i
    return records
