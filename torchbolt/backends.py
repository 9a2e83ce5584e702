# torchbolt/backends.py
"""Who makes a recorded region run: torchbolt itself, eager, or a function of the user's.

A backend is `backend(gm, example_inputs) -> callable`. It is called once for each region compiled, with the region's
operators as a torch.fx.GraphModule: placeholders in the order of the call's arguments, then what the region reads from
elsewhere (parameters, globals), then numbers that differ between calls. What it returns is called with tensors and
numbers in that order, from the next call on (the one that was recorded has its result), and gives a tuple of tensors.
"""

from __future__ import annotations

import itertools
import linecache
import operator
import os
import re
import sys
from importlib import metadata
from typing import NamedTuple

import torch
import torch.fx

from torchbolt import exc, onnxrt
from torchbolt.options import suggest


class _Native(NamedTuple):
    road: int  # compile.h's Road
    meaning: str
    tags: tuple[str, ...] = ()
    launches_at_once: bool = False


# Ours, in C++: no function to call. The latter two tell where a fault comes from.
NATIVE = {
    "torchbolt": _Native(0, "compiles"),
    "inductor": _Native(0, "what torch.compile calls its own compiler: torchbolt takes its place"),
    "eager": _Native(1, "records, then replays the operators"),
    "cudagraphs": _Native(
        0,
        "compiles, and repeated calls on CUDA are launched at once, as in mode='reduce-overhead'",
        launches_at_once=True,
    ),
    "aot_eager": _Native(2, "records, makes the functional graph, and runs that operator by operator"),
}


def _nearest(name: str, why: str) -> _Native:
    return _Native(NATIVE[name].road, f"torch's name for debugging; as {name}: {why}", ("debug",))


NATIVE |= {
    "eager_noexcept": _nearest("eager", "an error of the region is the user's in any case"),
    "eager_debug": _nearest("eager", "what is replayed is what was recorded"),
    "pre_dispatch_eager": _nearest("eager", "there is no graph above autograd"),
    "aot_eager_decomp_partition": _nearest("aot_eager", "there is one set of decompositions"),
    "aot_eager_decomp_partition_with_mode": _nearest("aot_eager", "there is no mode to run it in"),
    "aot_eager_decomp_partition_crossref": _nearest("aot_eager", "`torchbolt bisect` compares operators with eager"),
    "aot_eager_default_partitioner": _nearest("aot_eager", "there is one way to divide forward and backward"),
}
# What torch registers with torch._dynamo itself and has no nearest: name -> why, and what to do. They are not looked
# up there, so that the answer is the same whether or not something has loaded torch._dynamo before.
_TORCHS = {
    "ts": "TorchScript takes no part in torchbolt; backend='eager' replays operators",
    "aot_ts": "TorchScript takes no part in torchbolt; backend='aot_eager' runs the functional graph",
    "invoke_subgraph": "it is a part of torch's own compiler; torchbolt.nested_compile_region marks what repeats",
    "dynamo_minifier_backend": "`torchbolt bisect` finds the smallest part that fails and writes it as a program",
    "dynamo_accuracy_minifier_backend": "`torchbolt bisect` finds the smallest part that differs and writes it down",
    **{
        name: f"torch's function for it is a part of torch._dynamo: pass torch._dynamo.lookup_backend({name!r})"
        for name in ("openxla", "openxla_eval", "tvm")
    },
    **{
        f"{name}_TESTING_ONLY": "it fails on purpose, for torch's own tests"
        for name in ("relu_compile_error", "relu_runtime_error", "relu_accuracy_error", "non_leaf_compile_error")
    },
}
# Of names that people know from torch.compile, those that are not here unless a package has registered them.
REFUSED = {
    **_TORCHS,
    **{
        name: f"{package} registers it with torch._dynamo: import both before"
        for name, package in {
            "tensorrt": "torch_tensorrt",
            "torch_tensorrt": "torch_tensorrt",
            "openvino": "openvino.torch",
            "ipex": "intel_extension_for_pytorch",
            "hidet": "hidet",
        }.items()
    },
}
# Ours that get graphs: name -> (function, whether it can be used here, one line).
_BUILT_IN = {
    "onnxrt": (onnxrt.onnxrt, onnxrt.check_installed, "ONNX Runtime runs each region, exported by torch's exporter")
}
_registered: dict[str, tuple] = {}  # name -> (function, tags)
_default: list = [os.environ.get("TORCH_COMPILE_BACKEND") or "torchbolt"]


def register_backend(compiler_fn=None, name: str | None = None, tags=()):
    """Makes `backend=name` mean `compiler_fn`; also a decorator. The name is the function's own unless given."""
    if compiler_fn is None:
        return lambda compiler_fn: register_backend(compiler_fn, name, tags)
    if not callable(compiler_fn):
        raise exc.ArgumentError(f"torchbolt.register_backend: {compiler_fn!r} is not callable")
    name = name or compiler_fn.__name__
    if name in NATIVE or name in _BUILT_IN or name in _registered:
        whose = "registered already" if name in _registered else "torchbolt's own"
        raise exc.DuplicateBackend(f"torchbolt.register_backend: {name!r} is {whose}")
    _registered[name] = (compiler_fn, tuple(tags))
    return compiler_fn


def list_backends(exclude_tags=("debug", "experimental")) -> list[str]:
    """Names that backend= takes, without those under one of the tags; None: all. describe_backends() has more."""
    excluded = set(exclude_tags or ())
    tagged = {name: native.tags for name, native in NATIVE.items()}
    tagged |= {name: getattr(function, "_tags", ()) for name, function in _registered_with_torch().items()}
    tagged |= dict.fromkeys([*_BUILT_IN, *_installed()], ())
    tagged |= {name: tags for name, (_, tags) in _registered.items()}
    return sorted(name for name, tags in tagged.items() if not excluded & set(tags))


def describe_backends() -> dict[str, str]:
    """One line for each name that backend= takes, and for those of torch's that it does not."""
    lines = {name: native.meaning for name, native in NATIVE.items()}
    lines |= {name: f"not here: {why}" for name, why in REFUSED.items()}
    lines |= {name: _first_line(f, "registered with torch._dynamo") for name, f in _registered_with_torch().items()}
    lines |= {name: meaning for name, (_, _, meaning) in _BUILT_IN.items()}
    lines |= {name: f"of the installed package {entry.dist.name}" for name, entry in _installed().items()}
    lines |= {name: _first_line(function, "registered") for name, (function, _) in _registered.items()}
    return dict(sorted(lines.items()))


def _first_line(function, otherwise: str) -> str:
    """The first line of a function's own documentation."""
    return (getattr(function, "__doc__", None) or otherwise).strip().split("\n")[0]


def _registered_with_torch() -> dict:
    """What the program and its packages have registered with torch._dynamo, where that is loaded: name -> function."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    theirs = registry._COMPILER_FNS if registry is not None else {}
    return {name: f for name, f in theirs.items() if not (name in NATIVE or name in _BUILT_IN or name in _TORCHS)}


def _installed() -> dict:
    """What installed packages offer to torch.compile, besides ourselves."""
    return {e.name: e for e in metadata.entry_points(group="torch_dynamo_backends") if e.name not in NATIVE}


def set_default_backend(backend=None) -> None:
    """What compile() without backend= means from now on: a name or a function; None: torchbolt."""
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise exc.ArgumentError(f"torchbolt.set_default_backend: {backend!r} is no name and not callable")
    _default[0] = "torchbolt" if backend is None else backend


def get_default_backend():
    """What compile() without backend= means."""
    return _default[0]


def check(backend):
    """A name of ours, or the function behind another; InvalidBackend that names the nearest."""
    backend = _default[0] if backend is None else backend
    if backend == "inductor":
        return "torchbolt"
    if isinstance(backend, str):
        if backend in NATIVE:
            return backend
        if backend in _registered:
            return _registered[backend][0]
        if backend in _BUILT_IN:
            function, check_installed, _ = _BUILT_IN[backend]
            check_installed()
            return function
        if (found := _found_elsewhere(backend)) is not None:
            return found
        if backend in REFUSED:
            raise exc.InvalidBackend(f"torchbolt.compile: there is no backend {backend!r} here: {REFUSED[backend]}")
        known = [*NATIVE, *_BUILT_IN, *_registered, *_registered_with_torch()]
        raise exc.InvalidBackend(
            f"torchbolt.compile: unknown backend {backend!r}.{suggest(backend, known)} "
            "torchbolt.list_backends(None) lists all."
        )
    if not callable(backend):
        raise exc.InvalidBackend(f"torchbolt.compile: backend must be a name or a function, not {backend!r}")
    return backend


def _found_elsewhere(name):
    """What a program registered with torch, or an installed package offers torch.compile, under the name."""
    if (registered := _registered_with_torch().get(name)) is not None:
        return registered
    entry = _installed().get(name)
    return entry.load() if entry is not None else None


class Configured:
    """A backend with the mode and the options that compile() was given for it."""

    def __init__(self, backend, **arguments):
        self.backend, self.arguments = backend, arguments
        self.__name__ = getattr(backend, "__name__", str(backend))

    def __call__(self, gm, example_inputs):
        return self.backend(gm, example_inputs, **self.arguments)

    def __eq__(self, other):
        return isinstance(other, Configured) and (self.backend, self.arguments) == (other.backend, other.arguments)

    def __hash__(self):
        return hash((self.backend, *self.arguments))


class TensorMeta(NamedTuple):
    """What torch's own node.meta["tensor_meta"] has."""

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    device: torch.device


_OF_SIZES = {
    **{name: getattr(operator, name) for name in ("add", "mul", "floordiv", "mod")},
    **{"min": torch.sym_min, "max": torch.sym_max},
}


class GraphBuilder:
    """An FX graph, node by node: session/backend.cpp walks the recorded operators and calls this."""

    def __init__(self):
        self._graph = torch.fx.Graph()
        self._root = torch.nn.Module()
        self._inputs: list = []
        self._names: set[str] = set()
        self._grad = torch.is_grad_enabled()

    def placeholder(self, name, tensor, facts):
        name = re.sub(r"\W+", "_", name).strip("_") or "arg"
        return _describe(self._placeholder(f"{name}_" if name[0].isdigit() else name, tensor), facts)

    def number(self, name, value):
        return _known(self._placeholder(name, value), value)

    def _placeholder(self, name, value):
        # What FX makes an argument of its code is called as it is: two temporaries must not be namesakes.
        names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
        free = next(each for each in names if each not in self._names)
        self._names.add(free)
        self._inputs.append(value)
        return self._graph.placeholder(free)

    def size(self, tensor, dim, value):
        return _known(self._graph.call_function(torch.ops.aten.sym_size.int, (tensor, dim)), value)

    def computed(self, name, left, right):
        function = _OF_SIZES[name]
        values = [part.meta["val"] if isinstance(part, torch.fx.Node) else part for part in (left, right)]
        return _known(self._graph.call_function(function, (left, right)), function(*values))

    def constant(self, tensor, facts):
        # Each call gets its own: the region may write to it or return it.
        name = f"_tensor_constant{len(list(self._root.buffers()))}"
        self._root.register_buffer(name, tensor)
        held = _describe(self._graph.get_attr(name), facts)
        return _describe(self._graph.call_function(torch.ops.aten.clone.default, (held,)), facts)

    def operator(self, name, overload, args, kwargs, results, grad, line):
        if bool(grad) != self._grad:
            self._grad = bool(grad)
            self._graph.call_function(torch._C._set_grad_enabled, (self._grad,))
        namespace, _, function = name.partition("::")
        target = getattr(getattr(getattr(torch.ops, namespace), function), overload or "default")
        node = self._graph.call_function(target, tuple(args), kwargs)
        file, number, scope = line
        if number:
            node.meta["stack_trace"] = (
                f'File "{file}", line {number}, in {scope}\n    {linecache.getline(file, number).strip()}'
            )
        if len(results) != 1:
            parts = [self._graph.call_function(operator.getitem, (node, i)) for i in range(len(results))]
        else:
            parts = [node]
        return [self._part(part, facts) for part, facts in zip(parts, results, strict=True)]

    def _part(self, node, facts):
        if isinstance(facts, list):
            return [_describe(self._graph.call_function(operator.getitem, (node, i)), f) for i, f in enumerate(facts)]
        return _describe(node, facts)

    def finish(self, outputs, backend):
        if self._grad != torch.is_grad_enabled():
            self._graph.call_function(torch._C._set_grad_enabled, (torch.is_grad_enabled(),))
        self._graph.output(tuple(outputs))
        gm = torch.fx.GraphModule(self._root, self._graph)
        try:
            made = backend(gm, list(self._inputs))
            if not callable(made):
                raise TypeError(f"a backend returns a callable, not {type(made).__name__}")
        except Exception as error:
            raise exc.BackendCompilerFailed(getattr(backend, "__name__", str(backend)), error) from error
        return made


def _known(node, value):
    """What a number was in the recorded run."""
    node.meta["val"] = node.meta["example_value"] = value
    return node


def _describe(node, facts):
    """What the recorded run showed of a node's result, as a tensor without data and as plain facts."""
    if facts is not None:
        dtype, shape, stride, device, requires_grad = facts
        node.meta["val"] = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        node.meta["tensor_meta"] = TensorMeta(torch.Size(shape), dtype, requires_grad, stride, torch.device(device))
        node.meta["example_value"] = node.meta["val"]
    return node
