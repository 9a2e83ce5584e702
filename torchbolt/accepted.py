"""Functions of torch.compiler that have nothing to do here: accepted, so that programs which call them run."""

from __future__ import annotations


def cudagraph_mark_step_begin() -> None:
    """A new iteration begins. There are no CUDA graphs whose memory would wait for that."""


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Processes recompile together, or not: here each does so by itself. False: it was not enabled before."""
    return False


def save_cache_artifacts() -> None:
    """None, torch's word for nothing to save: compiled code is in the disk cache already, a folder that may be copied
    to other machines (TORCHBOLT_CACHE_DIR)."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """None: nothing is loaded."""
