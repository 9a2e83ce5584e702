# torchbolt/stand_ins/arrays.py
"""numpy's functions of arrays, computed on the tensors that share the arrays' memory.

torch._numpy says by which operators. Whether these give what numpy gives is not taken on trust: before a call becomes
part of a region both compute it (`_plan`), of the arrays that there are and of values at which libraries part (nan,
infinities, zeros, the ends of integers). Where class, dtype, shape, values or who shares whose memory differ, numpy
computes it, between two regions.

Read when a recording meets the first array: torch._numpy takes a tenth of a second to import.
"""

from __future__ import annotations

import operator
import sys
import warnings

import numpy as np
import torch
import torch._numpy as library
from torch._numpy import _dtypes, _dtypes_impl

# torch._numpy would ask torch.compile's settings for numpy's default types, and import its compiler for that. Where
# that is there already, what the user set there holds.
if getattr(_dtypes_impl, "_default_dtypes", True) is None and "torch._dynamo" not in sys.modules:
    _dtypes.set_default_dtype("numpy", "numpy")

_IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ipow: operator.pow,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
}
_PLAIN = (int, float, bool, type(None))
_COUNTERPARTS = {}


def _shape(array):
    return tuple(array.shape)


def _size(array):
    return array.size


def _ndim(array):
    return array.ndim


def _transposed(array):
    return array.T


def _as_float(number):
    return float(number.tensor)


def _as_int(number):
    return int(number.tensor)


#: What is read of an array as a function of it.
_ATTRIBUTES = {"shape": _shape, "size": _size, "ndim": _ndim, "T": _transposed}


def _fill_counterparts():
    for theirs, ours in ((np, library), (np.linalg, library.linalg), (np.fft, library.fft)):
        for name in dir(ours):
            found = getattr(theirs, name, None)
            if callable(found) and not isinstance(found, type) and not name.startswith("_"):
                _COUNTERPARTS[found] = getattr(ours, name)
    for name in dir(library.ndarray):
        found = np.ndarray.__dict__.get(name)
        if type(found).__name__ == "method_descriptor" and not name.startswith("_"):
            _COUNTERPARTS[found] = getattr(library.ndarray, name)
    _COUNTERPARTS.update({np.generic.item: library.ndarray.item, float: _as_float, int: _as_int})
    for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool_"):
        _COUNTERPARTS[getattr(np, name)] = getattr(library, name)


def _counterpart(function):
    """What computes it of torch._numpy's arrays; None: nothing does."""
    if not _COUNTERPARTS:
        _fill_counterparts()
    if isinstance(function, np.dtype):
        function = function.type
    if function in _IN_PLACE:
        return _IN_PLACE[function]
    if getattr(function, "__module__", None) == "_operator" or function in _ATTRIBUTES.values():
        return function
    return _COUNTERPARTS.get(function)


_NUMBERS = {np.float64: torch.float64, np.float32: torch.float32, np.int64: torch.int64, np.int32: torch.int32}


def _given(value):
    """An argument as torch._numpy takes it, where arrays have become tensors."""
    if isinstance(value, torch.Tensor):
        return library.ndarray(value)
    if type(value) in _NUMBERS:
        number = float(value) if isinstance(value, np.floating) else int(value)
        return library.ndarray(torch.full((), number, dtype=_NUMBERS[type(value)], device="cpu"))
    if isinstance(value, tuple):
        return tuple([_given(each) for each in value])
    if isinstance(value, list):
        return [_given(each) for each in value]
    return value


def _as_planned(made, plan):
    if isinstance(plan, tuple):
        return type(made)([_as_planned(each, part) for each, part in zip(made, plan, strict=True)])
    if plan == "plain":
        return made
    if plan == "number":
        return made.tensor.numpy()[()]
    return (made.tensor.clone() if plan == "copied" else made.tensor).numpy()


def _compute(by, plan, /, *args, **options):
    """What the interpreter follows in the place of numpy's function."""
    made = by(*[_given(each) for each in args], **{name: _given(each) for name, each in options.items()})
    if plan == "written":
        args[0].copy_(made.tensor)
        return None
    return _as_planned(made, plan)


def _mapped(value, change):
    if isinstance(value, (tuple, list)):
        return type(value)([_mapped(each, change) for each in value])
    if isinstance(value, dict):
        return {name: _mapped(each, change) for name, each in value.items()}
    return change(value)


def _in_torch(value):
    if isinstance(value, np.ndarray):
        return library.ndarray(torch.from_numpy(value))
    if isinstance(value, np.generic):
        return library.ndarray(torch.from_numpy(np.array(value)))
    if isinstance(value, (np.dtype, type)):
        return _counterpart(value)
    return value


def _arrays_in(value, found):
    _mapped(value, lambda each: found.append(each) if isinstance(each, np.ndarray) else None)
    return found


def _odd(turn):
    """Other values of the same kind, at which functions differ if they do anywhere."""

    def other(value):
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        dtype, shape = value.dtype, np.shape(value)
        if dtype.kind == "f":
            values = [np.nan, 0.0, -2.25, np.inf, 0.5, -np.inf, -0.0, 7.0]
        elif dtype.kind in "iu":
            limits = np.iinfo(dtype)
            values = [0, 1, limits.max, 3, limits.min, 2] + [-7, -1] * (dtype.kind == "i")
        elif dtype.kind == "b":
            values = [True, False, True]
        else:
            return value
        made = np.resize(np.roll(np.array(values, dtype=dtype), turn), shape)
        return made if isinstance(value, np.ndarray) else made[()]

    return other


def _tolerance(dtype):
    return {2: 1e-2, 4: 1e-4}.get(dtype.itemsize, 1e-9) if dtype.kind in "fc" else 0


def _compared(expected, made, operands):
    """How what torch gives becomes what numpy gave; None: not at all."""
    if type(expected) in (tuple, list) and not all(type(each) in _PLAIN for each in expected):
        if type(expected) is not type(made) or len(expected) != len(made):
            return None
        parts = tuple(_compared(*each, operands) for each in zip(expected, made, strict=True))
        return None if None in parts else parts
    if type(expected) in _PLAIN or type(expected) is tuple:
        same = type(expected) is type(made) and (expected == made or expected != expected)
        return "plain" if same else None
    tensor = getattr(made, "tensor", None)
    if not isinstance(expected, (np.ndarray, np.generic)) or tensor is None or tensor.device.type != "cpu":
        return None
    given = tensor.numpy()
    if given.dtype != expected.dtype or given.shape != expected.shape or type(expected) is np.bool_:
        return None
    tolerance = _tolerance(given.dtype)
    if not np.allclose(given, expected, rtol=tolerance, atol=tolerance, equal_nan=given.dtype.kind in "fc"):
        return None
    if isinstance(expected, np.generic):
        return "number"
    if any(expected is each for each in operands):
        return None
    if any(np.may_share_memory(expected, each) for each in operands):
        alike = given.size == 0 or (given.ctypes.data == expected.ctypes.data and _steps(given) == _steps(expected))
        return "array" if alike else None
    return "copied" if any(np.may_share_memory(given, each) for each in operands) else "array"


def _steps(array):
    return [step for step, size in zip(array.strides, array.shape, strict=True) if size != 1]


def _tried(function, args, options):
    """What it gives, and whether it does at all."""
    try:
        return function(*args, **options), True
    except Exception:  # whatever numpy raises is raised by numpy
        return None, False


def _copied(value):
    return value.copy(order="K") if isinstance(value, np.ndarray) else value


def _plan_of(function, by, args, options, writes):
    mine, theirs = (_mapped(args, _copied), _mapped(args, _copied)) if writes else (args, args)
    expected, works = _tried(function, mine, options)
    given = _mapped(theirs, _in_torch)
    made, also = _tried(by, given, _mapped(options, _in_torch))
    if not works or not also:
        return "raises" if works == also else None
    if not writes:
        return _compared(expected, made, _arrays_in((args, options), []))
    if function in _IN_PLACE:
        target = given[0].tensor
        if not _tried(target.copy_, (made.tensor,), {})[1]:
            return None
    return "written" if _compared(mine[0], given[0], []) else None


def _plan(function, by, args, options):
    """How the result is made of what `by` gives; None: numpy computes it."""
    writes = function in _IN_PLACE or function is operator.setitem
    with np.errstate(all="ignore"), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        plan = _plan_of(function, by, args, options, writes)
        if plan in (None, "raises"):
            return None
        for turn in (0, 3):
            other = _plan_of(function, by, _mapped(args, _odd(turn)), _mapped(options, _odd(turn)), writes)
            if other is None:
                return None
    return "plain" if function is operator.setitem else plan
