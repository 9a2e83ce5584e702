# torchbolt/guards.py
"""options={"guard_filter_fn": fn}: which guards to keep is asked as torch.compile asks it.

`fn` is given a list of entries and returns a bool for each. torch.compiler's own filters (`keep_tensor_guards_unsafe`,
`skip_guard_on_all_nn_modules_unsafe`, ...) work on them. Guards on tensors are kept in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from torchbolt import exc


@dataclass(frozen=True)
class _Source:
    """Where a guarded object was found."""

    name: str
    module: type | None  # the class of the innermost module on the way

    def is_unspecialized_nn_module(self) -> bool:
        return self.module is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return self.module is not None and self.module.__module__.startswith("torch.nn")


@dataclass(frozen=True)
class _Guard:
    name: str
    source: _Source


@dataclass(frozen=True)
class GuardFilterEntry:
    """One guard."""

    name: str  # "self.layers[0].scale"
    has_value: bool
    value: object
    guard_type: str  # "TENSOR_MATCH", "EQUALS_MATCH", ...
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: _Guard


def _entry(name, has_value, value, kind, is_global, classes) -> GuardFilterEntry:
    module = next((cls for cls in classes if issubclass(cls, torch.nn.Module)), None)
    return GuardFilterEntry(name, has_value, value, kind, (kind,), is_global, _Guard(name, _Source(name, module)))


def filter_of(fn):
    """What C++ asks: rows to bools."""
    if fn is None:
        return None

    def keep(rows):
        kept = fn([_entry(*row) for row in rows])
        if not isinstance(kept, Iterable):
            raise exc.ArgumentError(
                f"torchbolt: guard_filter_fn must give a list of bools, one for each guard, not {kept!r}"
            )
        kept = [bool(answer) for answer in kept]
        if len(kept) != len(rows):
            raise exc.ArgumentError(
                f"torchbolt: guard_filter_fn gave {len(kept)} answers for {len(rows)} guards; it must give one for each"
            )
        return kept

    return keep
