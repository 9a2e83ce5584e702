"""compile(): functions, methods and modules to compiled ones. The work is in torchbolt._C; here is only the shape."""

from __future__ import annotations

import atexit
import copy
import functools
import sys
import types
import weakref

import torch

from torchbolt import _C, backends, config, guards
from torchbolt import options as options_

# Compiled objects alive, so that reset() reaches them.
_all: weakref.WeakSet = weakref.WeakSet()
# (module class, options) -> its compiled subclass: instances of one class share programs.
_classes: dict[tuple, type] = {}


def compile(
    model=None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend="torchbolt",
    mode: str | None = None,
    options: dict | None = None,
    disable: bool = False,
    background: bool = False,
    recompile_limit: int | None = None,
    name: str | None = None,
):
    """A compiled `model`: same arguments, same results, same errors.

    Takes a function, a bound method or an nn.Module; without one, gives a decorator. The first call runs the model for
    real and records it; later calls run what was compiled from the recording as long as nothing it rested on changed.

    fullgraph: raise GraphBreak where a region would end. dynamic: None, True or False as in torch.compile.
    background: compile on another thread; until that is done calls run eagerly. disable: give `model` back.
    recompile_limit: how many recordings are kept for one place in the code (config.recompile_limit, 8).
    backend: a name of list_backends(), or a function (torchbolt.backends). mode, options: list_mode_options()
    and describe_options(). name: what the target is called in messages and logs.
    """
    if model is None:
        return lambda fn: compile(
            fn,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
            background=background,
            recompile_limit=recompile_limit,
            name=name,
        )
    checked = options_.check(
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
    if disable:
        return model
    if isinstance(model, torch.nn.Module):
        return _compile_module(model, checked)
    if isinstance(model, type):
        raise TypeError(f"torchbolt.compile: {model.__name__} is a class; compile an instance of it or its methods")
    if isinstance(model, types.MethodType):
        return types.MethodType(_compiled(model.__func__, checked), model.__self__)
    if not callable(model):
        raise TypeError(f"torchbolt.compile: {type(model).__name__} is not callable")
    return _compiled(model, checked)


atexit.register(_C._stop)


def _dynamic(opts):
    if opts.dynamic is not None or not config.dynamic_shapes:
        return bool(opts.dynamic and config.dynamic_shapes)
    if not config.assume_static_by_default:
        return True
    return None if config.automatic_dynamic_shapes else False


def _compiled(target, opts, receiver=None):
    compiled = _C.Compiled(
        target,
        receiver=receiver,
        fullgraph=opts.fullgraph,
        background=opts.background,
        recompile_limit=opts.recompile_limit,
        dynamic=_dynamic(opts),
        name=opts.name,
        road=0 if callable(opts.backend) else backends.NATIVE[opts.backend].road,
        backend=opts.backend if callable(opts.backend) else None,
        guard_filter=guards.filter_of(dict(opts.extra).get("guard_filter_fn")),
        trace=options_.trace_folder(opts.extra),
    )
    _all.add(compiled)
    return compiled


def _compile_module(model, opts):
    cls = type(model)
    if hasattr(cls, "_torchbolt_options"):  # compiled before: compile what is inside anew
        model, cls = model._torchbolt_original, cls._torchbolt_class
    sub = _compiled_class(cls, opts)
    # One state, two objects: the compiled module is the original seen through a subclass whose __call__ is compiled,
    # and runs with the original as `self`.
    wrapper = object.__new__(sub)
    object.__setattr__(wrapper, "__dict__", model.__dict__)
    object.__setattr__(wrapper, "_torchbolt_original", model)
    return wrapper


@functools.cache
def _writing_to_the_original(meta):
    """A metaclass whose classes leave their attributes to the class they were made for: type(self).count += 1 in a
    method called on a compiled module counts where everybody else counts. And their subclasses: who derives from
    type(self) and makes the module one of those (torch's parametrizations do) means the user's class."""

    def __new__(mcs, name, bases, namespace, **kwargs):
        meant = tuple([vars(base).get("_torchbolt_class", base) for base in bases])
        if meant != bases:
            where = sys._getframe(1).f_globals.get("__name__")  # as type() does, of which this is one call more
            return meta(name, meant, {"__module__": where, **namespace}, **kwargs)
        return meta.__new__(mcs, name, bases, namespace, **kwargs)

    def __setattr__(cls, name, value):
        if name in ("_abc_impl", "__abstractmethods__"):  # ABCMeta makes each class its own
            meta.__setattr__(cls, name, value)
        else:
            setattr(cls._torchbolt_class, name, value)

    def __delattr__(cls, name):
        delattr(cls._torchbolt_class, name)

    own = {"__new__": __new__, "__setattr__": __setattr__, "__delattr__": __delattr__}
    own["__bases__"] = property(lambda cls: cls._torchbolt_class.__bases__)  # how parametrizations are taken off
    return type(meta.__name__, (meta,), own)


class _CompiledModule:
    """What the classes of compiled modules have before the user's class: neither notices the other."""

    __slots__ = ()

    @property
    def __class__(self):
        return type(self)

    @__class__.setter
    def __class__(self, cls):
        cls = getattr(cls, "_torchbolt_class", cls)  # of another compiled module
        self._torchbolt_original.__class__ = cls
        object.__dict__["__class__"].__set__(self, _compiled_class(cls, self._torchbolt_options))

    def __init_subclass__(cls):  # the user's own, which may keep a register of classes, is not for this one
        pass

    def __reduce_ex__(self, protocol):
        return _compile_module, (self._torchbolt_original, self._torchbolt_options)

    def __deepcopy__(self, memo):
        return _compile_module(copy.deepcopy(self._torchbolt_original, memo), self._torchbolt_options)

    def __copy__(self):
        return _compile_module(copy.copy(self._torchbolt_original), self._torchbolt_options)


class _WithOriginal(_CompiledModule):
    """The original is in a slot, because the dict is the original's too. The slot is here and not in each class: Python
    lets objects change only to classes of the same layout."""

    __slots__ = ("_torchbolt_original",)


def _compiled_class(cls, opts):
    sub = _classes.get((cls, opts))
    if sub is not None:
        return sub
    own = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__slots__": (),
        "_torchbolt_options": opts,
        "_torchbolt_class": cls,
    }
    meta = _writing_to_the_original(type(cls))
    try:
        sub = meta(cls.__name__, (_WithOriginal, cls), own)
    except TypeError:  # the user's class has slots too
        sub = meta(cls.__name__, (_CompiledModule, cls), {**own, "__slots__": _WithOriginal.__slots__})
    _classes[cls, opts] = sub
    type.__setattr__(sub, "__call__", _compiled(cls.__call__, opts, receiver=sub._torchbolt_original))
    return sub


def reset() -> None:
    """Forgets everything compiled in this process; the disk cache stays."""
    _C.wait()
    for compiled in list(_all):
        compiled._clear()
    _C.reset_stats()


def stats() -> dict:
    """What happened in this process so far: regions, graph_breaks, recompiles, eager_fallbacks, cache hits, times."""
    return _C.stats()


def wait() -> None:
    """Returns when no background compilation is running."""
    _C.wait()


def compiled_of(target):
    """The torchbolt._C.Compiled behind something compile() returned."""
    if isinstance(target, _C.Compiled):
        return target
    if isinstance(target, types.MethodType) and isinstance(target.__func__, _C.Compiled):
        return target.__func__
    call = type(target).__dict__.get("__call__")
    return call if isinstance(call, _C.Compiled) else None
