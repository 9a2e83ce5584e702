# torchbolt/controls.py
"""What users say about compilation from inside and around their code: disable, graph_break, marks. (stance.py has
set_stance, which knows backends by their names.)

The marks torch.compile's users already carry (torch.compiler.disable, torch._dynamo.disable and graph_break,
torch.compiler.is_compiling) mean the same here, without those modules being imported.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass

import torch

from torchbolt import _C, exc, modules

# By name, session/stance.h's Stance.
STANCES = {
    "default": 0,
    "force_eager": 1,
    "eager_on_recompile": 2,
    "fail_on_recompile": 3,
    "eager_then_compile": 4,
    "aot_eager_then_compile": 4,
}


class _eagerly:
    """Compiled callables run eagerly in this thread, whatever set_stance says."""

    def __enter__(self):
        self._before = _C._set_thread_stance(STANCES["force_eager"])

    def __exit__(self, *_):
        _C._set_thread_stance(self._before)


def disable(fn=None, recursive: bool = True, *, reason: str | None = None):
    """`fn` is never compiled: a region that calls it ends there, and begins again after it.

    recursive=False: only its own code is not; functions that it calls and that were compiled by themselves are.
    Of a module comes a module, with the same parameters; of a class the class, whose instances are made and called so.
    """
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    if isinstance(fn, torch.nn.Module):
        return modules.seen_through(fn, _Disabling(recursive, reason))
    if inspect.isclass(fn):
        return _disable_class(fn, recursive, reason)
    if isinstance(fn, _C.Compiled):
        fn = fn.__wrapped__
    if not callable(fn):
        raise exc.ArgumentError(f"torchbolt.disable: {fn!r} is not a function")

    @functools.wraps(fn)
    def disabled(*args, **kwargs):
        if not recursive:
            return fn(*args, **kwargs)
        with _eagerly():
            return fn(*args, **kwargs)

    disabled._torchbolt_disable = reason or True
    return disabled


def _disable_class(cls, recursive, reason):
    for name in ("__init__", "__call__"):
        function = inspect.getattr_static(cls, name, None)
        if inspect.isfunction(function) or isinstance(function, _C.Compiled):
            setattr(cls, name, disable(function, recursive, reason=reason))
    return cls


@dataclass(frozen=True)
class _Disabling:
    """How modules are seen through disable()."""

    recursive: bool
    reason: str | None

    def call(self, cls, original):
        @functools.wraps(cls.__call__)
        def __call__(self, *args, **kwargs):
            return cls.__call__(original.__get__(self), *args, **kwargs)

        __call__.__qualname__ = f"{cls.__qualname__}.__call__"
        return disable(__call__, self.recursive, reason=self.reason)


def is_disabled(module) -> bool:
    """Whether `module` came of disable()."""
    return isinstance(getattr(type(module), "_torchbolt_view", None), _Disabling)


def _each(fn, use):
    """`use` for a function, or for each of a list of them."""
    if isinstance(fn, (list, tuple)):
        return [_each(one, use) for one in fn]
    use(fn)
    return fn


def allow_in_graph(fn):
    """Calls of `fn` become part of the region as they are: its body is not interpreted, its operators are recorded.

    Nothing that the body reads is guarded, only what it is given; tensors reach it as arguments. Also for C functions,
    which otherwise end the region. Takes one function or a list of them, and gives it back.
    """

    def use(one):
        if not callable(one):
            raise exc.ArgumentError(f"torchbolt.allow_in_graph: {one!r} is not callable")
        _C._mark(one, "allow_in_graph", None)

    return _each(fn, use)


def assume_constant_result(fn):
    """`fn` is called once when a call is recorded, and its result is taken for a constant, unchecked."""
    if not callable(fn):
        raise exc.ArgumentError(f"torchbolt.assume_constant_result: {fn!r} is not callable")
    _C._mark(fn, "constant", None)
    return fn


def substitute_in_graph(original_fn, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False):
    """Where a recorded call meets `original_fn` (a C function, say), it runs the decorated Python function instead."""
    if not callable(original_fn):
        raise exc.ArgumentError(f"torchbolt.substitute_in_graph: {original_fn!r} is not callable")

    def decorate(fn):
        if not inspect.isfunction(fn):
            raise exc.ArgumentError(f"torchbolt.substitute_in_graph: {fn!r} is not a Python function")
        if not skip_signature_check:
            _same_parameters(original_fn, fn)
        _C._mark(original_fn, "substitute", fn)
        return fn

    return decorate


def _same_parameters(original, fn):
    try:
        wanted = inspect.signature(original)
    except (ValueError, TypeError):  # C functions need not have one
        return
    names = [p.name for p in wanted.parameters.values()]
    given = [p.name for p in inspect.signature(fn).parameters.values()]
    if names != given:
        raise exc.ArgumentError(
            f"torchbolt.substitute_in_graph: {fn.__name__}{inspect.signature(fn)} does not take the arguments of "
            f"{original.__name__}{wanted}; skip_signature_check=True allows it"
        )


def nested_compile_region(fn=None, *, options=None, max_reuse_entries: int = 8, reuse_hash_fn=None):
    """Marks a function that is called many times, like a layer. Accepted: equal kernels are compiled once anyway."""
    return (lambda fn: fn) if fn is None else fn


class error_on_graph_break:
    """Within a `with` block or a decorated function, inside a compiled one: a region's end is an error, or is not.

    Weaker than fullgraph=True, which holds for all of a callable and cannot be taken back.
    """

    def __init__(self, error: bool):
        self._error = bool(error)

    def __enter__(self):
        self._before = _C._set_error_on_graph_break(self._error)
        return self

    def __exit__(self, *_):
        _C._set_error_on_graph_break(self._before)

    def __call__(self, fn):
        error = self._error

        @functools.wraps(fn)
        def within(*args, **kwargs):
            with error_on_graph_break(error):
                return fn(*args, **kwargs)

        return within


def graph_break(msg: str = "") -> None:
    """The region ends here, and the next one begins after it. Does nothing outside of one."""


def is_compiling() -> bool:
    """True while a call is being recorded."""
    return False
