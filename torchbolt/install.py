"""install(): torch.compile means torchbolt, for programs that are not to be changed."""

from __future__ import annotations

import torch

from torchbolt import api, controls

_original: dict[tuple, object] = {}


def install() -> None:
    """From now on torch.compile is torchbolt.compile, and with it torch.nn.Module.compile and the controls of
    torch.compiler."""
    ours = {
        (torch, "compile"): api.compile,
        (torch.compiler, "compile"): api.compile,
        (torch.compiler, "reset"): api.reset,
        (torch.compiler, "set_stance"): controls.set_stance,
        (torch.compiler, "disable"): controls.disable,
        (torch.compiler, "allow_in_graph"): controls.allow_in_graph,
        (torch.compiler, "assume_constant_result"): controls.assume_constant_result,
        (torch.compiler, "substitute_in_graph"): controls.substitute_in_graph,
        (torch.compiler, "nested_compile_region"): controls.nested_compile_region,
    }
    for (owner, name), function in ours.items():
        if hasattr(owner, name):
            _original.setdefault((owner, name), getattr(owner, name))
            setattr(owner, name, function)


def uninstall() -> None:
    """Takes install() back."""
    for (owner, name), function in _original.items():
        setattr(owner, name, function)
    _original.clear()
