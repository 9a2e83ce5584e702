# torchbolt/modules.py
"""A module whose calls are compiled, or disabled, and that is the module in all else.

One state, two objects: the module is seen through a subclass of its class whose `__call__` is another one. Both have
the same dict, and the call runs with the original as `self`. A view says what the call is: a frozen object that can be
pickled, with `call(cls, original)`, which gives a `__call__` in place of the class's own; `original` is the slot in
which the object that is seen keeps the module it stands for. If it has a `forward(cls, function, original)`, that gives
the function in place of a `forward` that is called by its name.
"""

from __future__ import annotations

import copy
import functools
import sys
import types

# (module class, view) -> the subclass: instances of one class share programs.
_classes: dict[tuple, type] = {}


def seen_through(model, view):
    """`model` itself, to all appearances, whose calls `view` has a say in."""
    cls = type(model)
    if hasattr(cls, "_torchbolt_view"):  # through another one
        model, cls = model._torchbolt_original, cls._torchbolt_class
    sub = _subclass(cls, view)
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
        meant = tuple([getattr(base, "_torchbolt_class", base) for base in bases])
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
    # Who writes to the class may look first what it has: a graph module that is compiled anew (`recompile`) wraps the
    # `__call__` that it finds in there, which must not be ours.
    own["__dict__"] = property(lambda cls: cls._torchbolt_class.__dict__)
    return type(meta.__name__, (meta,), own)


class _SeenModule:
    """What the classes of such modules have before the user's class: neither notices the other."""

    __slots__ = ()

    @property
    def __class__(self):
        return type(self)

    @__class__.setter
    def __class__(self, cls):
        cls = getattr(cls, "_torchbolt_class", cls)  # of another such module
        self._torchbolt_original.__class__ = cls
        object.__dict__["__class__"].__set__(self, _subclass(cls, self._torchbolt_view))

    @property
    def _orig_mod(self):
        """Torch's name for the original. A property: among the parts it would put its name before theirs."""
        return getattr(self._torchbolt_original, "_orig_mod", self._torchbolt_original)

    def __init_subclass__(cls):  # the user's own, which may keep a register of classes, is not for this one
        pass

    def __reduce_ex__(self, protocol):
        return seen_through, (self._torchbolt_original, self._torchbolt_view)

    def __deepcopy__(self, memo):
        return seen_through(copy.deepcopy(self._torchbolt_original, memo), self._torchbolt_view)

    def __copy__(self):
        return seen_through(copy.copy(self._torchbolt_original), self._torchbolt_view)


class _Forward:
    """`forward` of such modules. Which function it stands for is asked each time: graph modules are given others."""

    def __init__(self, cls, view, original):
        self.cls, self.view, self.original, self.made = cls, view, original, {}

    def __get__(self, seen, owner):
        function = self.cls.forward
        if not isinstance(function, types.FunctionType):
            return function if seen is None else super(owner, seen).forward
        if seen is None:
            return function
        if function not in self.made:
            self.made[function] = self.view.forward(self.cls, function, self.original)
        return types.MethodType(self.made[function], seen)


class _WithOriginal(_SeenModule):
    """The original is in a slot, because the dict is the original's too. The slot is here and not in each class: Python
    lets objects change only to classes of the same layout."""

    __slots__ = ("_torchbolt_original",)


def _subclass(cls, view):
    sub = _classes.get((cls, view))
    if sub is not None:
        return sub
    own = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__slots__": (),
        "_torchbolt_view": view,
        "_torchbolt_class": cls,
    }
    meta = _writing_to_the_original(type(cls))
    try:
        sub = meta(cls.__name__, (_WithOriginal, cls), own)
    except TypeError:  # the user's class has slots too
        sub = meta(cls.__name__, (_SeenModule, cls), {**own, "__slots__": _WithOriginal.__slots__})
    _classes[cls, view] = sub
    original = sub._torchbolt_original
    type.__setattr__(sub, "__call__", view.call(cls, original))
    if hasattr(view, "forward") and hasattr(cls, "forward"):
        type.__setattr__(sub, "forward", _Forward(cls, view, original))
    return sub
