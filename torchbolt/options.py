"""Arguments of compile(): what is accepted, what has an effect, and clear words for what is not."""

from __future__ import annotations

import difflib
import os
import time
from dataclasses import dataclass

from torchbolt import backends


@dataclass(frozen=True)
class _Option:
    type: type
    default: object
    meaning: str  # what it does, or "accepted: " and why it does nothing

    @property
    def is_accepted(self) -> bool:
        return self.meaning.startswith("accepted")


_GPU = "accepted: concerns GPUs, and what runs on one runs as in eager so far"
_NO_TUNING = "accepted: schedules are computed from the machine's facts, nothing is timed"
_ALWAYS = "accepted: it is always so"

# By name. What has no effect is accepted with a reason, so that code written for torch.compile runs unchanged.
OPTIONS: dict[str, _Option] = {
    "recompile_limit": _Option(int, 8, "programs kept for one place in the code"),
    "background": _Option(bool, False, "compile on another thread; calls run eagerly until that is done"),
    "max_autotune": _Option(bool, False, _NO_TUNING),
    "max_autotune_gemm": _Option(bool, False, _NO_TUNING),
    "max_autotune_pointwise": _Option(bool, False, _NO_TUNING),
    "coordinate_descent_tuning": _Option(bool, False, _NO_TUNING),
    "epilogue_fusion": _Option(bool, True, _ALWAYS),
    "prologue_fusion": _Option(bool, True, _ALWAYS),
    "pattern_matcher": _Option(bool, True, _ALWAYS),
    "layout_optimization": _Option(bool, True, _ALWAYS),
    "keep_output_stride": _Option(bool, True, _ALWAYS),
    "freezing": _Option(bool, True, "accepted: weights are always folded and packed, and watched for changes"),
    "shape_padding": _Option(bool, True, "accepted: kernels handle odd sizes by masks, nothing is padded"),
    "comprehensive_padding": _Option(bool, True, "accepted: kernels handle odd sizes by masks, nothing is padded"),
    "fallback_random": _Option(bool, True, "accepted: random numbers are always eager's"),
    "fx_graph_cache": _Option(bool, True, "accepted: the disk cache is by machine code; see force_disable_caches"),
    "force_disable_caches": _Option(
        bool, False, "accepted: the cache is the process's: torchbolt.config.force_disable_caches, TORCHBOLT_CACHE=0"
    ),
    "compile_threads": _Option(int, 8, "accepted: the threads are the process's: TORCHBOLT_THREADS"),
    "cpp_wrapper": _Option(bool, True, "accepted: there is no Python in a compiled region"),
    "trace.enabled": _Option(
        bool, False, "writes the guards, tape, graphs and plan of each region to a folder below torchbolt_debug"
    ),
    "trace.debug_dir": _Option(str, "", "where trace.enabled puts its folder; else TORCH_COMPILE_DEBUG_DIR, or here"),
    "trace.graph_diagram": _Option(bool, False, "accepted: trace.enabled writes graphs as text"),
    "guard_filter_fn": _Option(object, None, "says which guards to keep; those on tensors always are"),
    "triton.cudagraphs": _Option(bool, False, _GPU),
    "triton.cudagraph_trees": _Option(bool, True, _GPU),
    "triton.unique_kernel_names": _Option(bool, True, _GPU),
}

# More of them, by the reason.
_NO_EFFECT: dict[str, dict[str, object]] = {
    _NO_TUNING: {
        "max_autotune_gemm_backends": "ATEN,TRITON,CPP",
        "max_autotune_conv_backends": "ATEN,TRITON",
        "benchmark_kernel": False,
        "cpp.simdlen": None,
    },
    _GPU: {
        "triton.max_tiles": None,
        "triton.autotune_pointwise": True,
        "triton.persistent_reductions": True,
        "triton.cudagraph_skip_dynamic_graphs": False,
        "triton.cudagraph_support_input_mutation": True,
        "triton.multi_kernel": 0,
        "triton.prefer_nd_tiling": False,
        "graph_partition": True,
        "combo_kernels": False,
    },
    _ALWAYS: {
        "dce": True,
        "inplace_buffers": True,
        "allow_buffer_reuse": True,
        "memory_planning": True,
        "joint_graph_constant_folding": True,
        "reorder_for_locality": True,
    },
    "accepted: what is fused, and how loops run, follows from the operators alone": {
        "max_fusion_size": 64,
        "split_reductions": True,
        "unroll_reductions_threshold": 8,
        "permute_fusion": False,
        "group_fusion": False,
        "aggressive_fusion": False,
        "epilogue_fusion_first": False,
        "b2b_gemm_pass": False,
        "use_mixed_mm": True,
        "conv_1x1_as_mm": False,
        "emulate_precision_casts": False,
    },
    "accepted: guards tell of sizes and strides before a kernel runs, and nothing asserts them again": {
        "size_asserts": True,
        "nan_asserts": False,
        "assume_aligned_inputs": False,
    },
    "accepted: the threads are the process's: TORCHBOLT_THREADS, torch.set_num_threads": {
        "cpp.threads": -1,
        "worker_start_method": "subprocess",
    },
    "accepted: the disk cache is local": {"fx_graph_remote_cache": None},
    "accepted: TORCHBOLT_LOGS and trace.enabled show what is compiled": {
        "debug": False,
        "cpp.enable_kernel_profile": False,
    },
}
for _reason, _rows in _NO_EFFECT.items():
    for _name, _default in _rows.items():
        OPTIONS[_name] = _Option(object if _default is None else type(_default), _default, _reason)

MODES: dict[str, dict[str, object]] = {
    "default": {},
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
        raise ValueError(f"torchbolt: unknown mode {mode!r}." + suggest(mode, MODES))
    return dict(MODES[mode])


@dataclass(frozen=True)
class Options:
    """What a compiled callable was asked to be; equal options share compiled programs."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: object = "torchbolt"
    background: bool = False
    mode: str = "default"
    recompile_limit: int = 0  # 0: torchbolt.config's
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
    for key, value in dict(options or {}).items():
        if key not in OPTIONS:
            raise ValueError(f"torchbolt.compile: unknown option {key!r}." + suggest(key, OPTIONS))
        wanted = OPTIONS[key].type
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise TypeError(
                f"torchbolt.compile: option {key!r} must be {OPTIONS[key].type.__name__}, not {type(value).__name__}"
            )
        if merged.setdefault(key, value) != value:
            raise ValueError(
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


def check(*, fullgraph, dynamic, backend, mode, options, background, recompile_limit, name, disable=False) -> Options:
    """The arguments as Options; TypeError or ValueError that names what is wrong."""
    for argument, value in (("fullgraph", fullgraph), ("background", background), ("disable", disable)):
        if not isinstance(value, bool):
            raise TypeError(f"torchbolt.compile: {argument} must be True or False, not {value!r}")
    if dynamic not in (None, True, False):
        raise TypeError(f"torchbolt.compile: dynamic must be None, True or False, not {dynamic!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"torchbolt.compile: name must be a text, not {name!r}")
    backend = backends.check(backend)
    mode = "default" if mode is None else mode
    if callable(backend):
        backend, mode, options = _for_backend(backend, mode, dict(options or {}))
    if mode not in MODES:
        raise ValueError(f"torchbolt.compile: unknown mode {mode!r}." + suggest(mode, MODES))
    merged = _merged(mode, options)
    background = merged.pop("background", background)
    if not (merged.get("guard_filter_fn") is None or callable(merged["guard_filter_fn"])):
        raise TypeError(f"torchbolt.compile: guard_filter_fn must be callable, not {merged['guard_filter_fn']!r}")
    if recompile_limit is None:
        recompile_limit = merged.pop("recompile_limit", None)
    if recompile_limit is not None and (not isinstance(recompile_limit, int) or recompile_limit < 1):
        raise ValueError(f"torchbolt.compile: recompile_limit must be a whole number above 0, not {recompile_limit!r}")
    return Options(
        fullgraph,
        dynamic,
        backend,
        background,
        mode,
        recompile_limit or 0,
        name or "",
        tuple(sorted(merged.items(), key=lambda item: item[0])),
    )
