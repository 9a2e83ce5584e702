# torchbolt/stand_ins/schedules.py
"""Schedules of torch.optim that look a step's number up among milestones, in C: here by comparisons, which are facts of
a region as long as they come out the same, and not the number itself."""

from __future__ import annotations

import types

from torch.optim import lr_scheduler


def _bisect_right(ends, at):
    """bisect.bisect_right of a few milestones, which are sorted."""
    behind = 0
    for end in ends:
        if at < end:
            break
        behind += 1
    return behind


def _by_comparisons(method, name):
    code = method.__code__.replace(co_qualname=name)
    return types.FunctionType(code, {**method.__globals__, "bisect_right": _bisect_right}, method.__name__)


step_of_a_sequence = _by_comparisons(lr_scheduler.SequentialLR.step, "step_of_a_sequence")

#: By module and qualified name.
FUNCTIONS = {"torch.optim.lr_scheduler.SequentialLR.step": step_of_a_sequence}
