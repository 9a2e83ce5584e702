"""Arguments of compile(): what is accepted, and clear words for what is not."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
BACKENDS = ("torchbolt",)

# name -> type. What has no effect on the CPU is accepted, so that code written for a GPU runs unchanged.
OPTIONS: dict[str, type] = {
    "epilogue_fusion": bool,
    "max_autotune": bool,
    "shape_padding": bool,
    "triton.cudagraphs": bool,
    "recompile_limit": int,
}


@dataclass(frozen=True)
class Options:
    """What a compiled callable was asked to be; equal options share compiled programs."""

    fullgraph: bool = False
    dynamic: bool | None = None
    background: bool = False
    mode: str = "default"
    recompile_limit: int = 8
    extra: tuple = ()


def _suggest(name, known) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}."


def check(*, fullgraph, dynamic, backend, mode, options, background, recompile_limit) -> Options:
    """The arguments as Options; TypeError or ValueError that names what is wrong."""
    for name, value in (("fullgraph", fullgraph), ("background", background)):
        if not isinstance(value, bool):
            raise TypeError(f"torchbolt.compile: {name} must be True or False, not {value!r}")
    if dynamic not in (None, True, False):
        raise TypeError(f"torchbolt.compile: dynamic must be None, True or False, not {dynamic!r}")
    if backend not in BACKENDS and backend is not None:
        from torchbolt.exc import InvalidBackend

        raise InvalidBackend(f"torchbolt.compile: unknown backend {backend!r}." + _suggest(backend, BACKENDS))
    mode = "default" if mode is None else mode
    if mode not in MODES:
        raise ValueError(f"torchbolt.compile: unknown mode {mode!r}." + _suggest(mode, MODES))
    options = dict(options or {})
    for key, value in options.items():
        if key not in OPTIONS:
            raise ValueError(f"torchbolt.compile: unknown option {key!r}." + _suggest(key, OPTIONS))
        if not isinstance(value, OPTIONS[key]):
            raise TypeError(
                f"torchbolt.compile: option {key!r} must be {OPTIONS[key].__name__}, not {type(value).__name__}"
            )
    if recompile_limit is None:
        recompile_limit = options.pop("recompile_limit", 8)
    if not isinstance(recompile_limit, int) or recompile_limit < 1:
        raise ValueError(f"torchbolt.compile: recompile_limit must be a whole number above 0, not {recompile_limit!r}")
    return Options(fullgraph, dynamic, background, mode, recompile_limit, tuple(sorted(options.items())))
