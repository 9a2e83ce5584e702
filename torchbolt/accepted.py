# torchbolt/accepted.py
"""Functions of torch.compiler beside compile() and its controls: those about artifacts, and those that have nothing to
do here and are accepted, so that programs which call them run."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from torchbolt import _C, artifacts


class CacheInfo(NamedTuple):
    """What was saved or loaded; torch's has more fields."""

    entries: int


def cudagraph_mark_step_begin() -> None:
    """A new iteration begins. Nothing waits for that: results of CUDA graphs are memory of their own."""


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Processes recompile together, or not: here each does so by itself. False: it was not enabled before."""
    return False


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """The machine code that this process compiled or found, as bytes for load_cache_artifacts() elsewhere, signed with
    TORCHBOLT_CACHE_KEY. None: there is nothing, or there is no key, which a warning says."""
    _C.wait()
    chosen = artifacts.used_by_this_process()
    if not chosen:
        return None
    try:
        return artifacts.pack(chosen), CacheInfo(len(chosen))
    except artifacts.ArtifactError as error:
        warnings.warn(f"torchbolt.save_cache_artifacts: {error}", RuntimeWarning, 2)
        return None


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Puts what save_cache_artifacts() gave into this machine's cache. None: it is not taken over, for a reason that a
    warning says (no key, another key, changed bytes)."""
    try:
        return CacheInfo(artifacts.unpack(bytes(serialized_artifacts)))
    except artifacts.ArtifactError as error:
        warnings.warn(f"torchbolt.load_cache_artifacts: {error}", RuntimeWarning, 2)
        return None
