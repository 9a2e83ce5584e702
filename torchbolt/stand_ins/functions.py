# torchbolt/stand_ins/functions.py
"""torch.autograd.Function.apply, written so that the operators of both passes can be recorded.

The forward pass runs in the open. Behind it stands torchbolt::function (src/autograd/function.h), which puts a node of
autograd's behind what it gives; that node calls the user's backward pass. Where a joint tape is made the pass is called
once, with tensors that only stand for others, and from then on its operators run without its Python. So a call of it
must mean the same each time:

    state      What the forward pass left in its ctx is given to it: tensors as what is saved, and numbers, texts and
               types in tuples, lists and dicts, which are facts of the region. Of numbers that differ between calls a
               float is saved in a tensor, and an int is an argument of the operator, as sizes are. Where it left other
               objects the node is tied natively, to this call's own ctx.
    globals    What it reads from outside (names of its module, of closures, their attributes) is found in its bytecode
               and read in the open first, so it is guarded. Known are torch's and Python's functions, plain values and
               Python functions that are like that themselves. Where anything else is met, or something outside is
               written, the whole call is native.
"""

from __future__ import annotations

import builtins
import dis
import math
import operator
import types

import torch
from torch.autograd.function import FunctionCtx, _SingleLevelFunction
from torch.nn.modules._functions import BackwardHookFunction  # whose node is looked at, by name

from torchbolt import _C
from torchbolt.controls import disable
from torchbolt.stand_ins import versions


@disable(reason="the gradient of a torch.autograd.Function is needed")
def _apply_natively(cls, args, kwargs):
    return super(torch.autograd.Function, cls).apply(*args, **kwargs)


def apply_function(cls, *args, **kwargs):
    """torch.autograd.Function.apply, or the part of it that is C: where no gradient is needed it is the forward pass,
    without gradients."""
    given = versions.arguments_of_apply(cls, args, kwargs) if versions.APPLIES_IN_C else None if kwargs else args
    if given is None:
        return _apply_natively(cls, args, kwargs)
    return _apply(cls, *given)


def _apply(cls, *args):
    needs_grad = tuple([isinstance(a, torch.Tensor) and a.requires_grad for a in args])
    if torch.is_grad_enabled() and any(needs_grad):
        backward = _backward_of(cls)
        is_plain = cls is not BackwardHookFunction and isinstance(backward, types.FunctionType)
        is_plain = is_plain and not _declares_dtypes(cls)
        if is_plain and _reads_known(backward, []):
            return apply_openly(cls, *args)
        return _apply_natively(cls, args, {})
    ctx = cls._backward_cls()
    outputs = _run_forward(cls, ctx, args, needs_grad)
    if not isinstance(outputs, tuple):
        return _output(ctx, args, outputs)
    return tuple([_output(ctx, args, output) for output in outputs])


def _declares_dtypes(cls):
    """The engine is told which types its gradients shall have (set_output_grad_dtype, torch 2.14)."""
    passes = [getattr(each, "__code__", None) for each in (cls.forward, cls.setup_context)]
    return any("set_output_grad_dtype" in code.co_names for code in passes if code is not None)


def _run_forward(cls, ctx, args, needs_grad):
    ctx.needs_input_grad = needs_grad
    with torch.no_grad():
        if cls.setup_context is _SingleLevelFunction.setup_context:
            return cls.forward(ctx, *args)
        outputs = cls.forward(*args)
        cls.setup_context(ctx, args, outputs)
        return outputs


def _output(ctx, args, output):
    """An input that is given back unchanged becomes a view of it."""
    if not isinstance(output, torch.Tensor) or not _is_among(output, args):
        return output
    if _is_among(output, ctx.dirty_tensors or ()):
        return output
    return output.view_as(output)


def _is_among(wanted, objects):
    return id(wanted) in [id(candidate) for candidate in objects]


# ---- with gradients ----


class _Context(FunctionCtx):
    """The ctx of an autograd.Function whose two passes are Python's: saved_tensors are given to the second."""

    materialize_grads = True
    to_save = non_differentiable = dirty_tensors = ()
    saved_tensors = ()
    output_grad_dtypes = None


#: Attributes of a ctx that torch's own methods set.
_OWN = ("to_save", "non_differentiable", "dirty_tensors", "materialize_grads", "saved_for_forward", "saved_tensors")

_PLAIN = frozenset({
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format,
})  # fmt: skip
_FUNCTION = torch.ops.torchbolt.function.default
_SEQUENCES = {"tuple": tuple, "list": list, "Size": torch.Size}


def apply_openly(cls, *args):
    """autograd.Function.apply of what needs gradients."""
    ctx = _Context()
    outputs = _run_forward(cls, ctx, args, tuple([isinstance(a, torch.Tensor) and a.requires_grad for a in args]))
    given = outputs if isinstance(outputs, tuple) else (outputs,)
    tensors = [o for o in given if isinstance(o, torch.Tensor)]
    fixed = [id(t) for t in ctx.non_differentiable or ()]
    inputs = [a if isinstance(a, torch.Tensor) else None for a in args]
    differentiable = [id(t) not in fixed for t in tensors]
    saved = [t for t in ctx.to_save or () if t is not None]
    there = tuple([t is not None for t in ctx.to_save or ()])
    state, leaves, ints = [(name, value) for name, value in vars(ctx).items() if name not in _OWN], [], []
    names = tuple([name for name, _ in state])
    forms = tuple([_taken_apart(value, saved, ints, leaves) for _, value in state])
    if ctx.dirty_tensors or None in forms:
        return _tie_natively(cls, ctx, inputs, outputs, tensors, differentiable)
    number = _kept(_backward_of(cls), cls.__name__, there, names, forms, *leaves)
    results = iter(_FUNCTION(number, inputs, tensors, saved, ints, differentiable, bool(ctx.materialize_grads)))
    given = tuple([next(results) if isinstance(o, torch.Tensor) else o for o in given])
    return given if isinstance(outputs, tuple) else given[0]


def _taken_apart(value, tensors, ints, leaves):
    """A value of a ctx without its tensors, the ints that differ and plain values, which are added to the lists: how to
    put them together again. None: it is something else."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return "tensor"
    kind = type(value)
    if kind.__module__ == "numpy" and kind.__name__.startswith(("float", "int", "uint")):  # one of its numbers
        kind = float if kind.__name__.startswith("float") else int
        value = kind(value)  # operators take it for that one
    if kind is float and _differs(value):
        tensors.append(torch.full((), value, dtype=torch.float64, device="cpu"))
        return "float"
    if kind is int and _differs(value):
        ints.append(value)
        return "int"
    if kind in _PLAIN:
        leaves.append(value)
        return "leaf"
    if kind is dict and not [key for key in value if type(key) not in _PLAIN]:
        parts = tuple([_taken_apart(each, tensors, ints, leaves) for each in value.values()])
        return None if None in parts else ("dict", parts, tuple(value))
    if kind is not tuple and kind is not list and kind is not torch.Size:
        return None
    parts = tuple([_taken_apart(each, tensors, ints, leaves) for each in value])
    return None if None in parts else (kind.__name__, parts)


def _differs(number):
    """Is it another one in other calls? A recording answers itself."""
    return False


def _number_in(tensor):
    """Where a joint tape is made, a tensor stands for the number, too: arithmetic is done with it alike, and nothing
    else can be."""
    try:
        return tensor.item()
    except RuntimeError:
        return tensor


def _put_together(form, tensors, ints, leaves):
    if form == "tensor":
        return next(tensors)
    if form == "float":
        return _number_in(next(tensors))
    if form == "int":
        return next(ints)
    if form == "leaf":
        return next(leaves)
    kind, parts, *keys = form
    made = [_put_together(part, tensors, ints, leaves) for part in parts]
    return dict(zip(keys[0], made, strict=True)) if keys else _SEQUENCES[kind](made)


def _backward_of(cls):
    return cls.backward if cls.vjp is torch.autograd.Function.vjp else cls.vjp


def _called(context, backward, name, gradients):
    """The gradients of the inputs, by the user's backward pass."""
    found = backward(context, *gradients)
    found = found if isinstance(found, tuple) else (found,)
    needed = context.needs_input_grad
    if len(found) < len(needed) or any(g is not None for g in found[len(needed) :]):
        raise RuntimeError(
            f"function {name}Backward returned an incorrect number of gradients "
            f"(expected {len(needed)}, got {len(found)})"
        )
    return [g if needs else None for g, needs in zip(found, needed, strict=False)]


def _kept(backward, name, there, names, forms, *leaves):
    """The number of (saved, ints, gradients) -> the gradients of the inputs. Run unseen; its arguments are facts."""

    def run(saved, ints, gradients):
        context = _Context()
        rest, counted, values = iter(saved), iter(ints), iter(leaves)
        context.saved_tensors = tuple([next(rest) if there_is else None for there_is in there])
        for attribute, form in zip(names, forms, strict=True):
            setattr(context, attribute, _put_together(form, rest, counted, values))
        return _called(context, backward, name, gradients)

    return _C._keep_callable(run)


_C._mark(_kept, "constant", None)


@disable(reason="a torch.autograd.Function writes to its inputs, or keeps objects for its backward pass")
def _tie_natively(cls, ctx, inputs, outputs, tensors, differentiable):
    """What the forward pass gave, with a node behind it that has this very ctx."""
    saved = [t for t in ctx.to_save or () if t is not None]
    there = [t is not None for t in ctx.to_save or ()]
    name, backward = cls.__name__, _backward_of(cls)
    kept = {name: value for name, value in vars(ctx).items() if name not in _OWN}

    def run(saved, ints, gradients):
        context = _Context()
        vars(context).update(kept)
        rest = iter(saved)
        context.saved_tensors = tuple([next(rest) if there_is else None for there_is in there])
        return _called(context, backward, name, gradients)

    written = [_is_among(t, ctx.dirty_tensors or ()) for t in tensors]
    results = iter(_C._tie_function(run, inputs, tensors, saved, differentiable, written, bool(ctx.materialize_grads)))
    given = outputs if isinstance(outputs, tuple) else (outputs,)
    given = tuple([next(results) if isinstance(o, torch.Tensor) else o for o in given])
    return given if isinstance(outputs, tuple) else given[0]


# ---- what a backward pass reads from outside ----

_OF_PYTHON = frozenset({
    abs, all, any, bool, dict, divmod, enumerate, float, getattr, hasattr, int, isinstance, issubclass, len, list, map,
    max, min, pow, range, reversed, round, slice, sorted, sum, tuple, type, zip, RuntimeError, ValueError, TypeError,
    NotImplementedError, AssertionError, Exception, types, math, operator,
})  # fmt: skip
#: What begins so may do more than compute: torch.cuda.synchronize(), torch.distributed.all_reduce(), torch.save().
_MORE_THAN_OPERATORS = frozenset({
    "cuda", "distributed", "save", "load", "manual_seed", "seed", "random", "utils", "set_rng_state", "compile",
    "compiler", "set_default_dtype", "set_default_device", "set_grad_enabled", "use_deterministic_algorithms",
    "multiprocessing",
})  # fmt: skip
_GOES_OUTSIDE = frozenset({
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "LOAD_NAME", "LOAD_SUPER_ATTR",
})  # fmt: skip
_REBINDS = ("STORE_DEREF", "DELETE_DEREF")


def _chains_of(code, inner=()):
    """(in the closure?, name, attributes) of what code reads from outside; None: it may write there. Run unseen."""
    chains, chain = [], None
    outside = [name for name in code.co_freevars if name not in inner]
    for each in dis.get_instructions(code):
        if each.opname in _GOES_OUTSIDE or (each.opname in _REBINDS and each.argval in outside):
            return None
        is_global = each.opname == "LOAD_GLOBAL"
        if is_global or (each.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and each.argval in outside):
            chain = []
            chains.append((not is_global, each.argval, chain))
        elif each.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain is not None:
            chain.append(each.argval)
        elif each.opname not in ("CACHE", "PUSH_NULL"):
            chain = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found = _chains_of(constant, (*inner, *code.co_cellvars, *code.co_varnames))
            if found is None:
                return None
            chains += found
    return tuple([(closed, name, tuple(attributes)) for closed, name, attributes in chains])


def _only_computes(module):
    """Is it by its name one of torch's or Python's whose functions do nothing else? Others speak to processes."""
    of_others = module.startswith(("torch.distributed", "torch._C._distributed_c10d"))
    return not of_others and module.split(".")[0] in ("torch", "math", "operator", "_operator")


def _is_torchs(value):
    """Something that computes whenever it is called, and nothing else. Run unseen."""
    if isinstance(value, types.ModuleType):
        return _only_computes(value.__name__)
    if isinstance(value, (types.BuiltinFunctionType, types.FunctionType, type)) or callable(value):
        try:
            if value in _OF_PYTHON:
                return True
        except TypeError:
            return False
        module = getattr(value, "__module__", None)
        bound = getattr(value, "__self__", None)
        if isinstance(bound, types.ModuleType):
            module = bound.__name__
        return isinstance(module, str) and _only_computes(module)
    return False


def _is_what_it_was(value):
    """Run unseen: makes a fact of a value."""
    return True


def _within(function):
    """What a decorator of torch's has around: once_differentiable, custom_bwd. Run unseen."""
    while function.__code__.co_filename.startswith(_FOLDER) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


_FOLDER = torch.__file__.removesuffix("__init__.py")


def _value_of(function, closed, name):
    if closed:
        return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents
    space = function.__globals__
    return space[name] if name in space else getattr(builtins, name)


def _reads_known(function, seen):
    """Reads what the function reads from outside; False: it is not known what it does."""
    function = _within(function)
    chains = _chains_of(function.__code__)
    if chains is None:
        return False
    seen.append(function)
    for closed, name, attributes in chains:
        value = _value_of(function, closed, name)
        known = _is_torchs(value)
        for attribute in attributes:
            if known:
                break
            value = getattr(value, attribute)
            known = _is_torchs(value)
        if known:
            if attributes and attributes[0] in _MORE_THAN_OPERATORS:
                return False
        elif isinstance(value, types.FunctionType):
            if not _is_among(value, seen) and not _reads_known(value, seen):
                return False
        elif type(value) not in _PLAIN or not _is_what_it_was(value):
            return False
    return True


for each in (_chains_of, _declares_dtypes, _is_torchs, _is_what_it_was, _within):
    _C._mark(each, "constant", None)

#: By their names in observe/calls/cfunctions.def.
NATIVES = {"torch._C._FunctionBase.apply": apply_function}
