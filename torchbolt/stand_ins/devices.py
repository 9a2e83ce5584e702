# torchbolt/stand_ins/devices.py
"""What is asked of a CUDA device: the same for as long as it is the current one, which is a guard."""

from __future__ import annotations

import torch

from torchbolt import _C

_ORIGINALS = {
    "is_bf16_supported": torch.cuda.is_bf16_supported,
    "get_device_capability": torch.cuda.get_device_capability,
    "get_device_name": torch.cuda.get_device_name,
}


def _told_by(name, current, args, kwargs):
    """`current` is part of the question: the answer is kept with it."""
    return _ORIGINALS[name](*args, **kwargs)


_C._mark(_told_by, "constant", None)


def _of_the_current_device(name):
    def answer(*args, **kwargs):
        return _told_by(name, torch.cuda.current_device(), args, kwargs)

    return answer


def stand_in_where_there_are_any():
    """torch.version, since asking for devices takes time that an import should not."""
    if torch.version.cuda is None:
        return
    for name, original in _ORIGINALS.items():
        _C._mark(original, "substitute", _of_the_current_device(name))
