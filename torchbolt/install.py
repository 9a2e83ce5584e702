"""install(): torch.compile means torchbolt, for programs that are not to be changed."""

from __future__ import annotations

import torch

from torchbolt import accepted, api, backends, controls

# Of torch.compiler, by name.
_OURS = {
    function.__name__: function
    for function in (
        api.compile,
        api.reset,
        backends.get_default_backend,
        backends.list_backends,
        backends.set_default_backend,
        controls.allow_in_graph,
        controls.assume_constant_result,
        controls.disable,
        controls.nested_compile_region,
        controls.set_stance,
        controls.substitute_in_graph,
        accepted.cudagraph_mark_step_begin,
        accepted.load_cache_artifacts,
        accepted.save_cache_artifacts,
        accepted.set_enable_guard_collectives,
    )
}
_original: dict[tuple, object] = {}


def install() -> None:
    """From now on torch.compile is torchbolt.compile, and with it torch.nn.Module.compile and the controls of
    torch.compiler."""
    ours = {(torch, "compile"): api.compile} | {(torch.compiler, name): function for name, function in _OURS.items()}
    for (owner, name), function in ours.items():
        if hasattr(owner, name):
            _original.setdefault((owner, name), getattr(owner, name))
            setattr(owner, name, function)


def uninstall() -> None:
    """Takes install() back."""
    for (owner, name), function in _original.items():
        setattr(owner, name, function)
    _original.clear()
