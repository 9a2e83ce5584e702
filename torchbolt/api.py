# torchbolt/api.py
"""compile(): functions, methods and modules to compiled ones. The work is in torchbolt._C; here is only the shape."""

from __future__ import annotations

import atexit
import copy
import functools
import importlib
import inspect
import sys
import types
import weakref
from dataclasses import dataclass, field, replace

import torch

from torchbolt import _C, arguments, backends, controls, exc, guards, modules, stance, steps
from torchbolt.options import BUDGET, NUMERICS, Options, memory_budget, rounds_as_eager, trace_folder

# Compiled objects alive, so that reset() reaches them.
_all: weakref.WeakSet = weakref.WeakSet()


def compile(
    model=None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend=None,
    mode: str | None = None,
    options: dict | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec=None,
    background: bool = False,
):
    """A compiled `model`: same arguments, same results, same errors.

    Takes a function, a bound method, an nn.Module, or a class, whose instances' calls are compiled; without one, gives
    a decorator. Of a generator function or coroutine function, what runs between two yields is compiled. The first call
    runs the model for real and records it; later calls run what was compiled from the recording as long as nothing it
    rested on changed.

    fullgraph: raise GraphBreak where a region would end. dynamic: None, True or False as in torch.compile.
    background: compile on another thread; until that is done calls run eagerly. disable: give `model` back.
    recompile_limit: how many recordings are kept for one place in the code (config.recompile_limit, 8); 0: as disable.
    backend: a name of list_backends(), or a function (torchbolt.backends); None: get_default_backend(). mode, options:
    list_mode_options() and describe_options(). name: what the target is called in messages and logs.
    isolate_recompiles, shapes_spec: accepted. Each compiled callable has programs of its own, and sizes that change
    become symbols; mark_dynamic says more of them.
    """
    if model is None:
        return lambda fn: compile(
            fn,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            name=name,
            disable=disable,
            recompile_limit=recompile_limit,
            background=background,
        )
    checked = arguments.check(
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=options,
        background=background,
        recompile_limit=recompile_limit,
        name=name,
        disable=disable,
    )
    if disable or checked.recompile_limit == 0:
        return model
    if isinstance(model, torch.nn.Module):
        return model if controls.is_disabled(model) else modules.seen_through(model, _Compiling(checked))
    if isinstance(model, type):
        return _compiled_class(model, checked)
    if isinstance(model, staticmethod | classmethod):  # written above them instead of below
        return type(model)(_compiled_function(model.__func__, checked))
    if isinstance(model, types.MethodType):
        return types.MethodType(_compiled_function(model.__func__, checked), model.__self__)
    if not callable(model):
        raise exc.ArgumentError(f"torchbolt.compile: {type(model).__name__} is not callable")
    return _compiled_function(model, checked)


atexit.register(_C._stop)


@dataclass
class _Asked:
    """What a Compiled was made from, and those made from the same for other backends."""

    options: Options
    receiver: object
    twins: dict = field(default_factory=dict)


def _compiled(target, opts, receiver=None):
    folder = trace_folder(opts.extra)
    native = None if callable(opts.backend) else backends.NATIVE[opts.backend]
    extra = dict(opts.extra)
    compiled = _C.Compiled(
        target,
        receiver=receiver,
        asked=_Asked(opts, receiver),
        fullgraph=opts.fullgraph,
        background=opts.background,
        recompile_limit=opts.recompile_limit or 0,
        dynamic=opts.dynamic,
        name=opts.name,
        road=native.road if native else 0,
        backend=None if native else opts.backend,
        guard_filter=guards.filter_of(extra.get("guard_filter_fn")),
        measure=extra.get("measure"),
        trace=folder,
        memory_budget=memory_budget(extra.get(BUDGET)),
        launch_at_once=bool(extra.get("triton.cudagraphs")) or (native is not None and native.launches_at_once),
        tune=bool(extra.get("max_autotune")),
        rounds_as_eager=rounds_as_eager(extra.get(NUMERICS)),
    )
    _all.add(compiled)
    if folder:
        importlib.import_module("torchbolt.reports").at_exit(folder, compiled)
    return compiled


def name_of(compiled) -> str:
    """What a torchbolt._C.Compiled is called in reports."""
    return compiled._asked.options.name or getattr(compiled, "__qualname__", type(compiled.__wrapped__).__name__)


def _compiled_function(fn, opts):
    """Where calls of `fn` only make a generator or a coroutine, what these do is compiled. Regions end where they
    yield, so with fullgraph they stay uncompiled."""
    if opts.fullgraph or not steps.runs_in_steps(fn):
        return _compiled(fn, opts)
    named = replace(opts, name=opts.name or fn.__qualname__)
    return steps.in_steps(fn, lambda step: _compiled(step, named))


def _compiled_class(cls, opts):
    """As in torch: instances are made as ever, and calls of them are compiled."""
    if isinstance(inspect.getattr_static(cls, "__call__", None), types.FunctionType | _C.Compiled):
        cls.__call__ = _compiled(cls.__call__, opts)
    return cls


def _missing(compiled, name):
    """An attribute that neither it nor its target has: what torch's have may be something else here."""
    instead = importlib.import_module("torchbolt.torch_names").FUNCTIONS
    if name in instead:
        raise AttributeError(f"compiled {name_of(compiled)} has no attribute {name!r}: {instead[name]}")
    return getattr(compiled.__wrapped__, name)  # raises as it did


def _reduced(compiled):
    """What pickle keeps: where it is found, as of functions, or what it is made of."""
    found = sys.modules.get(compiled.__module__)
    for part in (name := getattr(compiled, "__qualname__", "")).split("."):
        found = getattr(found, part, None)
    return name if found is compiled else (_restored, (compiled.__wrapped__, compiled._asked.options, vars(compiled)))


def _restored(target, opts, attributes):
    compiled = _compiled(target, opts)
    vars(compiled).update(attributes)
    return compiled


def _deepcopied(compiled, memo):
    target = copy.deepcopy(compiled.__wrapped__, memo)
    if target is compiled.__wrapped__:  # functions are what they are
        return compiled
    return _restored(target, compiled._asked.options, copy.deepcopy(vars(compiled), memo))


def _twin(compiled):
    """What is called while a stance forces another backend, which has programs of its own."""
    asked, backend = compiled._asked, stance.forced_backend()
    if backend == asked.options.backend:
        return compiled
    if backend not in asked.twins:
        options = replace(asked.options, backend=backend)
        asked.twins[backend] = _compiled(compiled.__wrapped__, options, asked.receiver)
    return asked.twins[backend]


@dataclass(frozen=True)
class _Compiling:
    """How modules are seen through compile()."""

    options: Options

    def call(self, cls, original):
        named = replace(self.options, name=self.options.name or f"{cls.__qualname__}.forward")
        return _compiled(cls.__call__, named, receiver=original)

    def forward(self, cls, function, original):
        named = replace(self.options, name=self.options.name or f"{cls.__qualname__}.forward")
        compiled = _compiled(function, named, receiver=original)

        # A function: torch.compile and torch.jit.script ask for the code of a module's `forward`.
        @functools.wraps(function)
        def forward(self, *args, **kwargs):
            return compiled(self, *args, **kwargs)

        forward.aot_compile = lambda *args, **kwargs: compiled.aot_compile  # where torch has it; says what there is
        return forward


def reset() -> None:
    """Forgets everything compiled in this process, and gives its memory back; the disk cache stays."""
    _C.wait()
    for compiled in list(_all):
        compiled._clear()
    _C._give_back_results()
    _C.reset_stats()


def stats() -> dict:
    """What happened in this process so far: regions, graph_breaks, recompiles, eager_fallbacks, cache hits, times."""
    return _C.stats()


def wait() -> None:
    """Returns when no background compilation is running."""
    _C.wait()


def torch_backend(gm, example_inputs, *, mode=None, options=None):
    """What torch.compile(model, backend="torchbolt") calls with the graph that torch captured."""
    if hasattr(gm, "real_recompile"):  # torch writes the graph's code when it is first called
        gm.real_recompile()
    return compile(gm.forward, backend="torchbolt", mode=mode, options=options)


def compiled_of(target):
    """The torchbolt._C.Compiled behind something compile() returned."""
    if isinstance(target, _C.Compiled):
        return target
    if isinstance(target, types.MethodType) and isinstance(target.__func__, _C.Compiled):
        return target.__func__
    if step := getattr(target, "_torchbolt_step", None):
        return step
    call = getattr(type(target), "__call__", None)  # noqa: B004
    return call if isinstance(call, _C.Compiled) else None
