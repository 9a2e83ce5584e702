# torchbolt/options.py
"""The options, modes and settings of a compiled callable: names that users know -> what each does, or why it does
nothing.

These are tables, and below everything else but exc.py: arguments.py checks what compile() is given against them.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import time
from dataclasses import dataclass
from typing import NamedTuple

from torchbolt import exc, torch_names


class _Option(NamedTuple):
    type: type  # or several, joined by |
    meaning: str  # what it does, or "accepted: " and why it does nothing
    of_backend: bool = False  # it tells our compiler something; another backend is given it as it is

    @property
    def is_accepted(self) -> bool:
        return self.meaning.startswith("accepted")


BUDGET = "activation_memory_budget"
NUMERICS = "numerics"
EMULATE = "emulate_precision_casts"  # torch's name for numerics="eager"
_ALWAYS = "accepted: it is always so"

# By name. What has no effect is accepted with a reason, so that code written for torch.compile runs unchanged; most of
# that is in torch_names.py.
OPTIONS: dict[str, _Option] = {
    "recompile_limit": _Option(int, "programs kept for one place in the code"),
    "background": _Option(bool, "compile on another thread; calls run eagerly until that is done"),
    "measure": _Option(
        bool | None,
        "first calls measure programs beside eager, and those that are slower are given up; None: TORCHBOLT_MEASURE",
    ),
    "max_autotune": _Option(
        bool,
        "on GPUs, products of one operand apart and at once, and schedules of kernels, are measured: 5 s a program at "
        "most, once for a device",
        of_backend=True,
    ),
    "max_autotune_gemm": _Option(bool, torch_names.NO_TUNING),
    "max_autotune_pointwise": _Option(bool, torch_names.NO_TUNING),
    "coordinate_descent_tuning": _Option(bool, torch_names.NO_TUNING),
    "epilogue_fusion": _Option(bool, _ALWAYS),
    "prologue_fusion": _Option(bool, _ALWAYS),
    "pattern_matcher": _Option(bool, _ALWAYS),
    "layout_optimization": _Option(bool, _ALWAYS),
    "keep_output_stride": _Option(bool, _ALWAYS),
    "freezing": _Option(bool, "accepted: weights are always folded and packed, and watched for changes"),
    "shape_padding": _Option(bool, torch_names.NO_PADDING),
    "comprehensive_padding": _Option(bool, torch_names.NO_PADDING),
    "fallback_random": _Option(bool, "accepted: random numbers are always eager's"),
    "fx_graph_cache": _Option(bool, "accepted: the disk cache is by machine code; see force_disable_caches"),
    "force_disable_caches": _Option(
        bool, "accepted: the cache is the process's: torchbolt.config.force_disable_caches, TORCHBOLT_CACHE=0"
    ),
    "compile_threads": _Option(int | None, "accepted: the threads are the process's: TORCHBOLT_THREADS"),
    "cpp_wrapper": _Option(bool, "accepted: there is no Python in a compiled region"),
    "trace.enabled": _Option(
        bool,
        "writes the guards, tape, graphs and plan of each region to a folder below torchbolt_debug, and a report; "
        "TORCH_COMPILE_DEBUG=1: of all",
    ),
    "trace.debug_dir": _Option(
        str | None, "where trace.enabled puts its folder; else TORCH_COMPILE_DEBUG_DIR, or here"
    ),
    "trace.graph_diagram": _Option(bool, "accepted: the report of trace.enabled draws the graphs in any case"),
    BUDGET: _Option(
        int | float | str | None,
        "how much may be kept for the backward pass of a region: a share from 0 (the least that is possible) to 1 (as "
        'without it), or bytes, as a number above 1 or a text such as "2GB"',
    ),
    NUMERICS: _Option(
        str | None,
        '"eager": what an operator gives in bfloat16 or float16 is rounded before another one reads it, within kernels '
        'too, so that results are eager\'s bit for bit where operators are exact; "fast" (the default): rounded where '
        "it is stored",
        of_backend=True,
    ),
    EMULATE: _Option(bool | None, 'the same as numerics="eager"', of_backend=True),
    "guard_filter_fn": _Option(object, "says which guards to keep; those on tensors always are"),
    "triton.cudagraphs": _Option(
        bool,
        "repeated calls on CUDA are launched at once, by CUDA graphs; results are never overwritten",
        of_backend=True,
    ),
    "triton.cudagraph_trees": _Option(bool, "accepted: recorded calls share memory in any case"),
    "triton.unique_kernel_names": _Option(bool, "accepted: kernels are named by what they do"),
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


# Options of compile() where it is not told otherwise: by torch's variables, and after install() by torch's settings.
_FOLLOWED = ("max_autotune", "triton.cudagraphs", "trace.enabled", "trace.debug_dir", EMULATE)
_defaults: dict[str, object] = {
    name: True
    for name, variable in {
        "max_autotune": "TORCHINDUCTOR_MAX_AUTOTUNE",
        "triton.cudagraphs": "TORCHINDUCTOR_CUDAGRAPHS",
    }.items()
    if os.environ.get(variable) == "1"
}


def follow(name: str, value, torchs_default) -> None:
    """What torch._inductor.config is set to is the default of our option of that name, where it has an effect."""
    if name not in _FOLLOWED:
        return
    if not isinstance(value, OPTIONS[name].type):
        raise TypeError(f"{name} must be {OPTIONS[name].type}, not {value!r}")
    if value == torchs_default:
        _defaults.pop(name, None)
    else:
        _defaults[name] = value


def with_defaults(given: dict[str, object]) -> dict[str, object]:
    """The options of a call of compile(), and the defaults of those that it leaves open."""
    left = {name: value for name, value in _defaults.items() if name not in given}
    if NUMERICS in given:  # the other name for it
        left.pop(EMULATE, None)
    return {**left, **given}


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
    if not options.get("trace.enabled", os.environ.get("TORCH_COMPILE_DEBUG") == "1"):
        return ""
    root = options.get("trace.debug_dir") or os.environ.get("TORCH_COMPILE_DEBUG_DIR") or os.getcwd()
    return os.path.join(root, "torchbolt_debug", f"run_{_STARTED}-pid_{os.getpid()}")


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def memory_budget(value) -> float:
    """An activation_memory_budget as C++ takes it: up to 1 a share, above it bytes; not a number: none was given."""
    if value is None:
        return math.nan
    number = math.nan
    if isinstance(value, str):
        if found := re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?i?)b\s*", value.lower()):
            number = max(float(found[1]) * _UNITS.get(found[2], math.nan), 2.0)  # bytes, however few
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    if not 0 <= number < math.inf:
        raise exc.ArgumentError(
            "torchbolt: activation_memory_budget is a share from 0 to 1, or a number of bytes above 1 or a text like "
            f'"500MB", "2GB" or "1.5GiB", not {value!r}'
        )
    return number


def rounds_as_eager(numerics, emulate=None) -> bool | None:
    """What `numerics` and torch's name for it ask for; None: neither was given."""
    if numerics not in ("eager", "fast", None):
        raise exc.ArgumentError(f'torchbolt: numerics is "fast" or "eager", not {numerics!r}')
    if emulate and numerics == "fast":
        raise exc.ArgumentError('torchbolt: emulate_precision_casts means numerics="eager", not "fast"; leave out one')
    if numerics is None:
        return emulate
    return numerics == "eager"


def suggest(name, known) -> str:
    """Words that name the nearest known name, or all of a short list."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Known: {', '.join(known)}." if len(known) < 12 else ""
