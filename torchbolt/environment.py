# torchbolt/environment.py
"""Environment variables of torch.compile's -> what each means here: it does the same, or one sentence says why it does
nothing and what there is instead. `torchbolt probe` shows those that are set. Of those by which somebody asks for
something to be written or shown, and would wait for it in vain, a line is printed when torchbolt is imported.
"""

from __future__ import annotations

import os
import re
import sys

from torchbolt import options, torch_names

# Those with an effect; the code that reads them is beside the setting or the option that they are the default of.
EFFECTIVE = {
    "TORCH_COMPILE_DISABLE": "1: compiled callables run eagerly",
    "TORCHDYNAMO_DISABLE": "1: compiled callables run eagerly",
    "TORCHDYNAMO_SUPPRESS_ERRORS": "torchbolt.config.suppress_errors",
    "TORCHDYNAMO_VERBOSE": "torchbolt.config.verbose",
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES": "torchbolt.config.automatic_dynamic_shapes",
    "TORCH_COMPILE_BACKEND": "the backend of compile() without one",
    "TORCH_COMPILE_DEBUG": "1: trace.enabled of everything that is compiled",
    "TORCH_COMPILE_DEBUG_DIR": "where the folder of TORCH_COMPILE_DEBUG goes",
    "TORCH_COMPILE_FORCE_DISABLE_CACHES": "1: no disk cache",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1: no disk cache",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0: no disk cache",
    "TORCHINDUCTOR_CACHE_DIR": "the disk cache is in a folder torchbolt below it",
    "TORCHINDUCTOR_CUDAGRAPHS": "1: the option triton.cudagraphs where compile() is not told otherwise",
    "TORCHINDUCTOR_MAX_AUTOTUNE": "1: the option max_autotune where compile() is not told otherwise",
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS": '1: numerics="eager"',
    "TORCH_LOGS": "what is logged, beside TORCHBOLT_LOGS",
    "TORCH_LOGS_OUT": "the file that logs are written to",
}

# By which something is asked for that does not come: what does.
_SHOWS_NOTHING = {
    "TORCH_TRACE": "TORCH_COMPILE_DEBUG=1 writes every stage of what torchbolt compiles, and a report",
    "TORCHDYNAMO_REPRO_AFTER": "`torchbolt bisect TARGET` finds what fails or differs, and writes it as a program",
    "TORCH_COMPILE_REPLAY_RECORD": "`torchbolt bisect TARGET` writes a program that needs nothing of the target",
    "TORCH_COMPILE_CPROFILE": "torchbolt.explain() and torchbolt.stats() have the times of compiling",
    "TORCH_COMPILE_DYNAMO_PROFILER": "torchbolt.explain() and torchbolt.stats() have the times of compiling",
    "TORCHINDUCTOR_PROFILE": "torch.profiler shows kernels by name; explain(model, measure=True)(x) times each",
    "TORCHINDUCTOR_BENCHMARK_KERNEL": "explain(model, measure=True)(x) times each kernel beside its limit",
    "TORCHINDUCTOR_NAN_ASSERTS": "no kernel looks for NaN; torch.autograd.set_detect_anomaly finds a step's first",
    "TORCH_BISECT_BACKEND": "`torchbolt bisect TARGET` does it",
}

_INSIDE = "it concerns the inside of torch's own compiler"
# Where no option or setting of the name answers: what names begin with -> the sentence.
_FAMILIES = {
    "TORCHINDUCTOR_REDIS": "TORCHBOLT_REMOTE_CACHE=redis://... is the shared cache",
    "TORCHINDUCTOR_AUTOTUNE": torch_names.NO_TUNING.removeprefix("accepted: "),
    "TORCHINDUCTOR_CPP": "no C++ is written and no compiler called",
    "TORCHINDUCTOR_CUTLASS": "torchbolt uses no CUTLASS",
    "TORCHINDUCTOR_COMPILE_THREADS": "the threads are TORCHBOLT_THREADS",
    "TORCH_COMPILE_STICKY_PGO": "each process learns its sizes anew; torchbolt.save() keeps programs",
    "TORCH_LOGS_FORMAT": "lines of torchbolt have one form",
    "TORCH_LOGS_TRACE_ID_FILTER": "torchbolt numbers no compilations",
    "TRITON_": "torchbolt uses no Triton",
    "TORCHINDUCTOR_": _INSIDE,
    "TORCHDYNAMO_": _INSIDE,
    "TORCH_DYNAMO_": _INSIDE,
    "TORCH_COMPILE_": _INSIDE,
    "TORCH_COMPILER_": _INSIDE,
    "TORCH_CACHING_": "torchbolt.save() writes programs, load() takes them over",
    "TORCH_BISECT_": "`torchbolt bisect TARGET` does it",
    "TORCH_STRICT_PRECOMPILE": "torchbolt.save() writes programs, load() takes them over",
}


def answer(name: str) -> str | None:
    """What a variable of torch.compile's means here; None: it is none of those."""
    if name in EFFECTIVE:
        return EFFECTIVE[name]
    reason = _SHOWS_NOTHING.get(name) or _of_its_option(name)
    if reason is None:
        reason = next((why for begin, why in _FAMILIES.items() if name.startswith(begin)), None)
    return reason and f"has no effect: {reason}"


def _of_its_option(name: str) -> str | None:
    """An option or a setting that the variable is the default of, in torch."""
    found = re.fullmatch(r"(?:TORCHINDUCTOR|TORCHDYNAMO|TORCH_COMPILE|TORCH_DYNAMO)_(\w+)", name)
    key = found[1].lower() if found else ""
    option = options.OPTIONS.get(key)
    reason = option.meaning if option is not None and option.is_accepted else None
    if reason is None:
        reason = next((why for why, rows in torch_names.SETTINGS.items() if key in rows), None)
    return reason and reason.removeprefix("accepted: ")


def set_here() -> dict[str, str]:
    """Variables of torch.compile's that are set: name -> the answer."""
    found = {name: answer(name) for name, value in os.environ.items() if value}
    return {name: said for name, said in sorted(found.items()) if said}


def speak() -> None:
    """Says of what would be waited for in vain what there is instead."""
    for name, reason in _SHOWS_NOTHING.items():
        if os.environ.get(name, "0") not in ("", "0"):
            print(f"torchbolt: {name} has no effect on torchbolt: {reason}", file=sys.stderr)
