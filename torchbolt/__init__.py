"""Torchbolt: a drop-in torch.compile whose whole compiler is C++."""

import pkgutil

import torch

# Python started in a source checkout finds this folder first; the compiled parts are in the installed copy
# (or in build/python). With both on the path they form one package.
__path__ = pkgutil.extend_path(__path__, __name__)

try:
    from torchbolt import _build
except ImportError as error:
    raise ImportError("torchbolt is not built: run `make build` and use .venv/bin/python") from error

# torch's C++ interface changes with every release: a foreign build would fail with unreadable symbol errors.
if torch.__version__ != _build.torch_version:
    raise ImportError(
        f"torchbolt was built for torch {_build.torch_version}, but torch {torch.__version__} is installed; "
        "run `make build` (or `pip install --no-build-isolation .`) again"
    )

from torchbolt import _C, exc  # noqa: F401
from torchbolt.api import compile, reset, stats, wait
from torchbolt.controls import disable, graph_break, is_compiling, set_stance
from torchbolt.exc import GraphBreak
from torchbolt.explanation import explain
from torchbolt.marks import mark_dynamic, mark_static, maybe_mark_dynamic

__version__ = _build.version

__all__ = [
    "GraphBreak",
    "compile",
    "disable",
    "exc",
    "explain",
    "graph_break",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "reset",
    "set_stance",
    "stats",
    "wait",
]
