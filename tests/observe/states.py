# tests/observe/states.py
"""Programs that read a value, which is in one state and then in another."""

from __future__ import annotations

import types

import pytest
import torch

import torchbolt

#: Whether the value is read in the region that begins with the call, or in one that begins after an end.
both_regions = pytest.mark.parametrize("ended", [False, True], ids=["whole", "after an end"])


def reader(function, ended):
    """(what holds the value, `function` of a tensor and that value, compiled, the same in eager)."""
    holder = types.SimpleNamespace(value=None)

    def plain(x):
        return function(x, holder.value)

    def after_end(x):
        v = holder.value
        if x.sum() < 0:
            return x
        return function(x, v)

    program = after_end if ended else plain
    torchbolt.reset()
    return holder, torchbolt.compile(program), program


def outcome(function, *args):
    """What a call gives, or the class of what it raises."""
    try:
        return function(*args)
    except torchbolt.exc.TorchboltError:
        raise
    except Exception as error:
        return type(error)


def equal(a, b):
    """Whether two outcomes are one."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b)
