# torchbolt/marks.py
"""What users say about the sizes of a tensor before they give it to a compiled function.

The marks are attributes of the tensor under the names torch._dynamo gives them: what is marked for torch.compile is
marked for torchbolt and the other way round, without that module being imported.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import torch


class _Range(NamedTuple):
    dim: int
    min: int | None
    max: int | None


def mark_dynamic(
    tensor: torch.Tensor,
    index,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: list | None = None,
) -> None:
    """Size `index` (an int, or several) differs between calls, from the first recording on.

    A function that only works for one size raises ConstraintViolationError when it is compiled; maybe_mark_dynamic
    lets it have that size. min, max: calls outside are compiled apart. Sizes 0 and 1 are always compiled apart.
    hint_override, specialize_on: accepted. No size is guessed, and one program serves all sizes.
    """
    for dim in _dims(tensor, index):
        _add(tensor, "_dynamo_dynamic_indices", dim)
        if min is not None or max is not None:
            if min is not None and max is not None and min > max:
                raise ValueError(f"mark_dynamic: min={min} is larger than max={max}")
            _add(tensor, "_dynamo_dynamic_range", _Range(dim, min, max))


def maybe_mark_dynamic(tensor: torch.Tensor, index) -> None:
    """As mark_dynamic, where the function allows it."""
    for dim in _dims(tensor, index):
        _add(tensor, "_dynamo_weak_dynamic_indices", dim)


def mark_static(tensor: torch.Tensor, index=None) -> None:
    """Size `index` (an int, several, or all) is compiled as a number even where it changed before.

    Of a module, or a class of them: accepted. Their numbers are constants until they change.
    """
    if isinstance(tensor, torch.nn.Module) or inspect.isclass(tensor):
        return
    for dim in range(tensor.dim()) if index is None else _dims(tensor, index):
        _add(tensor, "_dynamo_static_indices", dim)


def _dims(tensor, index):
    for dim in index if isinstance(index, list | tuple) else (index,):
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"the tensor has {tensor.dim()} dimensions, and no dimension {dim}")
        yield dim % tensor.dim()


def _add(tensor, name, mark):
    if not hasattr(tensor, name):
        setattr(tensor, name, set())
    getattr(tensor, name).add(mark)
