"""Arguments of compile(): what is accepted, what has an effect, and clear words for what is not."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from torchbolt import backends, exc, torch_names


@dataclass(frozen=True)
class _Option:
    type: type  # or several, joined by |
    meaning: str  # what it does, or "accepted: " and why it does nothing

    @property
    def is_accepted(self) -> bool:
        return self.meaning.startswith("accepted")


_GPU = "accepted: concerns GPUs, and what runs on one runs as in eager so far"
_NO_TUNING = "accepted: schedules are computed from the machine's facts, nothing is timed"
_ALWAYS = "accepted: it is always so"

# By name. What has no effect is accepted with a reason, so that code written for torch.compile runs unchanged; most of
# that is in torch_names.py.
OPTIONS: dict[str, _Option] = {
    "recompile_limit": _Option(int, "programs kept for one place in the code"),
    "background": _Option(bool, "compile on another thread; calls run eagerly until that is done"),
    "max_autotune": _Option(bool, _NO_TUNING),
    "max_autotune_gemm": _Option(bool, _NO_TUNING),
    "max_autotune_pointwise": _Option(bool, _NO_TUNING),
    "coordinate_descent_tuning": _Option(bool, _NO_TUNING),
    "epilogue_fusion": _Option(bool, _ALWAYS),
    "prologue_fusion": _Option(bool, _ALWAYS),
    "pattern_matcher": _Option(bool, _ALWAYS),
    "layout_optimization": _Option(bool, _ALWAYS),
    "keep_output_stride": _Option(bool, _ALWAYS),
    "freezing": _Option(bool, "accepted: weights are always folded and packed, and watched for changes"),
    "shape_padding": _Option(bool, "accepted: kernels handle odd sizes by masks, nothing is padded"),
    "comprehensive_padding": _Option(bool, "accepted: kernels handle odd sizes by masks, nothing is padded"),
    "fallback_random": _Option(bool, "accepted: random numbers are always eager's"),
    "fx_graph_cache": _Option(bool, "accepted: the disk cache is by machine code; see force_disable_caches"),
    "force_disable_caches": _Option(
        bool, "accepted: the cache is the process's: torchbolt.config.force_disable_caches, TORCHBOLT_CACHE=0"
    ),
    "compile_threads": _Option(int | None, "accepted: the threads are the process's: TORCHBOLT_THREADS"),
    "cpp_wrapper": _Option(bool, "accepted: there is no Python in a compiled region"),
    "trace.enabled": _Option(
        bool, "writes the guards, tape, graphs and plan of each region to a folder below torchbolt_debug"
    ),
    "trace.debug_dir": _Option(
        str | None, "where trace.enabled puts its folder; else TORCH_COMPILE_DEBUG_DIR, or here"
    ),
    "trace.graph_diagram": _Option(bool, "accepted: trace.enabled writes graphs as text"),
    "guard_filter_fn": _Option(object, "says which guards to keep; those on tensors always are"),
    "triton.cudagraphs": _Option(bool, _GPU),
    "triton.cudagraph_trees": _Option(bool, _GPU),
    "triton.unique_kernel_names": _Option(bool, _GPU),
}

OPTIONS.update({name: _Option(object, reason) for name, reason in torch_names.OPTIONS.items()})

MODES: dict[str, dict[str, object]] = {
    "default": {},
    "lite": {
        "fallback_by_default": True,
        "selective_decompose": True,
        "reorder_for_peak_memory": False,
        "reorder_for_compute_comm_overlap": False,
        "triton.reorder_for_reducing_graph_partitions": False,
        "use_pre_grad_passes": False,
        "use_joint_graph_passes": False,
        "use_post_grad_passes": False,
        "use_dce": False,
        "allow_buffer_reuse": False,
    },
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
}


def list_options() -> list[str]:
    """The names that compile(options=...) takes."""
    return list(OPTIONS)


def describe_options() -> dict[str, str]:
    """What each option does; "accepted: ..." tells why one does nothing."""
    return {name: option.meaning for name, option in OPTIONS.items()}


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict:
    """The options that a mode stands for; of all modes, by name, without one."""
    if mode is None:
        return {name: dict(options) for name, options in MODES.items()}
    if mode not in MODES:
        raise exc.ArgumentError(f"torchbolt: unknown mode {mode!r}." + suggest(mode, MODES))
    return dict(MODES[mode])


@dataclass(frozen=True)
class Options:
    """What a compiled callable was asked to be; equal options share compiled programs."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: object = "torchbolt"
    background: bool = False
    mode: str = "default"
    recompile_limit: int | None = None  # None: torchbolt.config's
    name: str = ""
    extra: tuple = ()


_STARTED = time.strftime("%Y_%m_%d_%H_%M_%S")


def trace_folder(extra: tuple) -> str:
    """Where traces of regions go; "" where none are wanted."""
    options = dict(extra)
    if not options.get("trace.enabled"):
        return ""
    root = options.get("trace.debug_dir") or os.environ.get("TORCH_COMPILE_DEBUG_DIR") or os.getcwd()
    return os.path.join(root, "torchbolt_debug", f"run_{_STARTED}-pid_{os.getpid()}")


def suggest(name, known) -> str:
    """Words that name the nearest known name, or all of a short list."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Known: {', '.join(known)}." if len(known) < 12 else ""


def _merged(mode, options) -> dict[str, object]:
    """The options, each known and of its type, with those of the mode."""
    merged = list_mode_options(mode)
    for given, value in options.items():
        key = given.replace("-", "_") if isinstance(given, str) else given
        if key not in OPTIONS:
            raise exc.ArgumentError(f"torchbolt.compile: unknown option {given!r}." + suggest(key, OPTIONS))
        wanted = OPTIONS[key].type
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise exc.ArgumentError(
                f"torchbolt.compile: option {given!r} must be {getattr(wanted, '__name__', wanted)}, "
                f"not {type(value).__name__}"
            )
        if merged.setdefault(key, value) != value:
            raise exc.ArgumentError(
                f"torchbolt.compile: mode {mode!r} sets {key!r} to {merged[key]!r}, options to {value!r}; leave out one"
            )
    return merged


def _for_backend(backend, mode, options):
    """The backend with the mode and the options that are its own, and what is left for us: how we record."""
    ours = {key: options.pop(key) for key in list(options) if key in OPTIONS and not OPTIONS[key].is_accepted}
    arguments = {} if mode == "default" else {"mode": mode}
    if options:
        arguments["options"] = options
    return backends.Configured(backend, **arguments) if arguments else backend, "default", ours


def _must(argument, wanted, value):
    return exc.ArgumentError(f"torchbolt.compile: {argument} must be {wanted}, not {value!r}")


def check(*, fullgraph, dynamic, backend, mode, options, background, recompile_limit, name, disable=False) -> Options:
    """The arguments as Options; ArgumentError that names what is wrong. 0, 1 and None pass for False and True."""
    for argument, value in (("fullgraph", fullgraph), ("background", background), ("disable", disable)):
        if not isinstance(value, int | None):
            raise _must(argument, "True or False", value)
    if not isinstance(dynamic, int | None):
        raise _must("dynamic", "None, True or False", dynamic)
    if not isinstance(name, str | None):
        raise _must("name", "a text", name)
    if not isinstance(options, Mapping | None):
        raise _must("options", "a dict of names and their values", options)
    if not isinstance(mode, str | None):
        raise _must("mode", f"one of {', '.join(MODES)}", mode)
    backend, mode, options = backends.check(backend), mode or "default", dict(options or {})
    if callable(backend):
        backend, mode, options = _for_backend(backend, mode, options)
    if mode not in MODES:
        raise exc.ArgumentError(f"torchbolt.compile: unknown mode {mode!r}." + suggest(mode, MODES))
    merged = _merged(mode, options)
    background = merged.pop("background", background)
    if not (merged.get("guard_filter_fn") is None or callable(merged["guard_filter_fn"])):
        raise _must("guard_filter_fn", "callable", merged["guard_filter_fn"])
    if recompile_limit is None:
        recompile_limit = merged.pop("recompile_limit", None)
    if not isinstance(recompile_limit, int | None) or (recompile_limit or 0) < 0:
        raise _must("recompile_limit", "a whole number, 0 or above", recompile_limit)
    return Options(
        bool(fullgraph),
        None if dynamic is None else bool(dynamic),
        backend,
        bool(background),
        mode,
        recompile_limit,
        name or "",
        tuple(sorted(merged.items(), key=lambda item: item[0])),
    )
