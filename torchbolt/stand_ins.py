"""Python in place of native functions that call Python back.

The recorder runs these instead, so that what they call is part of the recording like any Python, and a region can
end inside it. Each is given what the native function is bound to, if anything, then its arguments. Functions that go
through an iterable or call a function stand in only where that leads to Python code; what they give is the native
one's, and so is the order in which they ask for items, truth and keys. None makes a generator for native code to run.
"""

from __future__ import annotations

import collections
import sys

import torch

from torchbolt import _C
from torchbolt.controls import disable

_OLD = sys.version_info < (3, 12)  # CPython's error texts


def enter_record_function(self):
    """record_function("name") inside a region names nothing: its kernels are not the lines it stood around."""
    self.run_callbacks_on_exit = False
    return self


_C._mark(torch.autograd.profiler.record_function.__enter__, "substitute", enter_record_function)


@disable(reason="the gradient of a torch.autograd.Function is needed")
def _apply_natively(cls, args):
    return super(torch.autograd.Function, cls).apply(*args)


def apply_function(cls, *args):
    """torch.autograd.Function.apply: where no gradient is needed it is the forward pass, without gradients."""
    needs_grad = tuple([isinstance(a, torch.Tensor) and a.requires_grad for a in args])
    if torch.is_grad_enabled() and any(needs_grad):
        return _apply_natively(cls, args)
    ctx = cls._backward_cls()
    ctx.needs_input_grad = needs_grad
    with torch.no_grad():
        if cls.setup_context is torch.autograd.function._SingleLevelFunction.setup_context:
            outputs = cls.forward(ctx, *args)
        else:
            outputs = cls.forward(*args)
            cls.setup_context(ctx, args, outputs)
        if not isinstance(outputs, tuple):
            return _output(ctx, args, outputs)
        return tuple([_output(ctx, args, output) for output in outputs])


def _output(ctx, args, output):
    """An input that is given back unchanged becomes a view of it."""
    if not isinstance(output, torch.Tensor) or not _is_among(output, args):
        return output
    if _is_among(output, ctx.dirty_tensors or ()):
        return output
    return output.view_as(output)


def _is_among(wanted, objects):
    return id(wanted) in [id(candidate) for candidate in objects]


_MISSING = object()


def _gathered(iterable=()):
    items = []
    for item in iterable:
        items.append(item)
    return items


def _any(iterable):
    for item in iterable:  # noqa: SIM110  this is what any() is made of
        if item:
            return True
    return False


def _all(iterable):
    for item in iterable:  # noqa: SIM110
        if not item:
            return False
    return True


def _sum(iterable, /, start=0):
    return sum(_gathered(iterable), start)


def _tuple(iterable=()):
    return tuple(_gathered(iterable))


def _set(iterable=()):
    return set(_gathered(iterable))


def _frozenset(iterable=()):
    return frozenset(_gathered(iterable))


def _deque(iterable=(), maxlen=None):
    return collections.deque(_gathered(iterable), maxlen)


def _join(separator, iterable):
    return str.join(separator, _gathered(iterable))


def _extend(items, iterable):
    for item in iterable:
        list.append(items, item)


def _update(items, *iterables):
    for iterable in iterables:
        for item in iterable:
            set.add(items, item)


def _sorted(iterable, /, *, key=None, reverse=False):
    items = _gathered(iterable)
    if key is None:
        return sorted(items, reverse=reverse)
    keys = []
    for item in items:
        keys.append(key(item))
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return [items[i] for i in order]


def _sort(items, *, key=None, reverse=False):
    list.__setitem__(items, slice(None), _sorted(items, key=key, reverse=reverse))


def _best(items, key, default, better, name):
    best = best_key = _MISSING
    for item in items:
        item_key = item if key is None else key(item)
        if best is _MISSING or better(item_key, best_key):
            best, best_key = item, item_key
    if best is not _MISSING:
        return best
    if default is not _MISSING:
        return default
    raise ValueError(f"{name}() arg is an empty sequence" if _OLD else f"{name}() iterable argument is empty")


def _max(first, /, *rest, key=None, default=_MISSING):
    return _best((first, *rest) if rest else first, key, default, lambda a, b: a > b, "max")


def _min(first, /, *rest, key=None, default=_MISSING):
    return _best((first, *rest) if rest else first, key, default, lambda a, b: a < b, "min")


def _reduce(function, iterable, /, *initial):
    items = iter(iterable)
    value = initial[0] if initial else _MISSING
    for item in items:
        value = item if value is _MISSING else function(value, item)
    if value is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    return value


def _next_map(function, iterators):
    return function(*[next(iterator) for iterator in iterators])


def _next_filter(function, iterator):
    for item in iterator:
        if item if function is None or function is bool else function(item):
            return item
    raise StopIteration


STAND_INS = {
    "next map": _next_map,
    "next filter": _next_filter,
    "torch._C._FunctionBase.apply": apply_function,
    "builtins.any": _any,
    "builtins.all": _all,
    "builtins.sum": _sum,
    "builtins.max": _max,
    "builtins.min": _min,
    "builtins.sorted": _sorted,
    "list": _gathered,
    "tuple": _tuple,
    "set": _set,
    "frozenset": _frozenset,
    "collections.deque": _deque,
    "str.join": _join,
    "list.extend": _extend,
    "list.sort": _sort,
    "set.update": _update,
    "_functools.reduce": _reduce,
}
