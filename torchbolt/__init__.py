# torchbolt/__init__.py
"""Torchbolt: a drop-in torch.compile whose whole compiler is C++."""

import importlib
import pkgutil
import sys

import torch

# Python started in a source checkout finds this folder first; the compiled parts are in the installed copy
# (or in build/python). With both on the path they form one package.
__path__ = pkgutil.extend_path(__path__, __name__)

try:
    from torchbolt import _build
except ImportError as error:
    raise ImportError("torchbolt is not built: run `make build` and use .venv/bin/python") from error

# torch's C++ interface changes with every release, and Python's does: a foreign build would fail with unreadable symbol
# errors.
if torch.__version__ != _build.torch_version or not sys.version.startswith(_build.python_version + "."):
    # What stands behind the plus, pip finds in an index of that name only.
    _, _, _kind = str(_build.torch_version).partition("+")
    _index = f" --index-url https://download.pytorch.org/whl/{_kind}" if _kind.startswith(("cpu", "cu", "rocm")) else ""
    raise ImportError(
        f"torchbolt {_build.version} was built for torch {_build.torch_version} and Python {_build.python_version}; "
        f"here are torch {torch.__version__} and Python {sys.version.split()[0]}. Either install what it was built for "
        f"(pip install torch=={_build.torch_version}{_index}), or a torchbolt for what is here: in a clone of its "
        "repository, `make wheel` builds one (or `pip install --no-build-isolation .`)"
    )

from torchbolt import _C, config, environment, exc, logs, stand_ins  # noqa: F401
from torchbolt.accepted import (
    cudagraph_mark_step_begin,
    load_cache_artifacts,
    save_cache_artifacts,
    set_enable_guard_collectives,
)
from torchbolt.api import compile, reset, stats, wait
from torchbolt.backends import (
    describe_backends,
    get_default_backend,
    list_backends,
    register_backend,
    set_default_backend,
)
from torchbolt.controls import (
    allow_in_graph,
    assume_constant_result,
    disable,
    error_on_graph_break,
    graph_break,
    is_compiling,
    nested_compile_region,
    substitute_in_graph,
)
from torchbolt.exc import GraphBreak
from torchbolt.install import install, uninstall
from torchbolt.logs import list_logs, set_logs
from torchbolt.marks import mark_dynamic, mark_static, maybe_mark_dynamic
from torchbolt.options import describe_options, list_mode_options, list_options
from torchbolt.stance import set_stance

logs.answer_environment()
environment.speak()

__version__ = _build.version

__all__ = [
    "GraphBreak",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "describe_backends",
    "describe_options",
    "disable",
    "error_on_graph_break",
    "exc",
    "explain",
    "get_default_backend",
    "graph_break",
    "install",
    "is_compiling",
    "list_backends",
    "list_logs",
    "list_mode_options",
    "list_options",
    "load",
    "load_cache_artifacts",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "register_backend",
    "report",
    "reset",
    "save",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_logs",
    "set_stance",
    "stats",
    "substitute_in_graph",
    "uninstall",
    "wait",
]


# What programs seldom ask for is imported when they do: name -> the module that has it.
_WHEN_ASKED = {
    "explain": "torchbolt.explanation",
    "load": "torchbolt.saved",
    "report": "torchbolt.reports",
    "save": "torchbolt.saved",
}


def __getattr__(name):
    """Whatever else torch.compiler has, like filters of guards and is_exporting, is torch's own."""
    if name in _WHEN_ASKED:
        globals()[name] = found = getattr(importlib.import_module(_WHEN_ASKED[name]), name)
        return found
    if name in torch.compiler.__all__:
        return getattr(torch.compiler, name)
    instead = importlib.import_module("torchbolt.torch_names").FUNCTIONS
    why = f": {instead[name]}" if name in instead else ""
    raise AttributeError(f"module 'torchbolt' has no attribute {name!r}{why}")
