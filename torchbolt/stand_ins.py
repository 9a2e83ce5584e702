"""Python in place of functions that a recording cannot simply run.

The recorder runs these instead, so that what they call is part of the recording like any Python: native functions that
call Python back (given what they are bound to, if anything, then their arguments; those that go through an iterable or
call a function only where that leads to Python code), and functions of torch whose own road leads
through torch.compile. None makes a generator for native code to run: a region could not end inside. What is not used
as usual is left to the function itself, for its errors and its warnings.
"""

from __future__ import annotations

import collections
import copy
import sys
import types
import warnings

import torch
from torch.utils import _pytree as pytree
from torch.utils import checkpoint as checkpoints

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


def _sum(iterable, /, *start, **named):
    return sum(_gathered(iterable), *start, **named)


def _tuple(iterable=()):
    return tuple(_gathered(iterable))


def _new_tuple(cls, iterable=()):
    return tuple.__new__(cls, _gathered(iterable))


def _set(iterable=()):
    return set(_gathered(iterable))


def _frozenset(iterable=()):
    return frozenset(_gathered(iterable))


def _deque(iterable=(), maxlen=None):
    return collections.deque(_gathered(iterable), maxlen)


def _join(separator, iterable):
    return str.join(separator, _gathered(iterable))


def _entries(given):
    """What a dict takes from this: of anything with keys() what belongs to them, of anything else pairs."""
    if not hasattr(given, "keys"):
        return _gathered(given)
    entries = {}
    for key in given.keys():  # noqa: SIM118  it may be gone through for something else
        entries[key] = given[key]
    return entries


def _with_pairs(function, place):
    """What makes or updates a dict, given what it takes in place of its argument."""

    def given(*args, **named):
        args = list(args)
        args[place] = _entries(args[place])
        return function(*args, **named)

    return given


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
    """Who looks at the list meanwhile finds it empty; who writes to it is told afterwards."""
    found = list.__getitem__(items, slice(None))
    list.clear(items)
    try:
        found = _sorted(found, key=key, reverse=reverse)
    finally:
        written = list.__len__(items) > 0
        list.__setitem__(items, slice(None), found)
    if written:
        raise ValueError("list modified during sort")


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


def _count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


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


def _reversed(sequence, length):
    for index in range(length - 1, -1, -1):
        try:
            item = sequence[index]
        except (IndexError, StopIteration):
            return
        yield item


def _reduced(described):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return described.__reduce__()


def _with_state(iterator, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        iterator.__setstate__(state)
    return iterator


# -- Higher-order operators: what they mean, written out ---------------------------------------------------------------
@disable(reason="it is not used as usual, which is an error of its own")
def _natively(function, *args, **kwargs):
    return function(*args, **kwargs)


def _are_tensors(leaves):
    return False not in [isinstance(leaf, torch.Tensor) for leaf in leaves]


def cond(pred, true_fn, false_fn, operands=()):
    """torch.cond is a branch; one on data ends the region there, and both sides are compiled as they occur."""
    if isinstance(pred, torch.Tensor):
        usual = pred.numel() == 1 and callable(true_fn) and callable(false_fn) and isinstance(operands, tuple | list)
        if not usual or not _are_tensors(pytree.tree_leaves(operands)):
            return _natively(torch.cond, pred, true_fn, false_fn, operands)
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """torch.while_loop is a loop, whose turns are compiled as they occur."""
    carried = tuple(carried_inputs)
    turns = _continues(cond_fn(*carried))
    if not turns:
        return tuple([c.clone() if isinstance(c, torch.Tensor) else c for c in carried])
    while turns:
        following = body_fn(*carried)
        if not isinstance(following, tuple):
            raise AssertionError(f"body_fn should return a tuple but got {type(following)}")
        if len(following) != len(carried):
            raise AssertionError(
                "body_fn should return the same number of elements as carried_inputs, "
                f"got {len(following)} vs {len(carried)}"
            )
        carried = following
        turns = _continues(cond_fn(*carried))
    return carried


def _continues(answer):
    if isinstance(answer, bool) or (
        isinstance(answer, torch.Tensor) and answer.dim() == 0 and answer.dtype == torch.bool
    ):
        return bool(answer)
    raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {answer}")


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """torch's scan: a loop over slices, whose outputs are stacked."""
    leaves, spec = pytree.tree_flatten(xs)
    start = pytree.tree_leaves(init)
    usual = leaves and start and _are_tensors(leaves) and _are_tensors(start) and callable(combine_fn)
    if not usual or not isinstance(dim, int) or not isinstance(reverse, bool):
        return _natively(torch._higher_order_ops.scan, combine_fn, init, xs, dim=dim, reverse=reverse)
    if True in [leaf.dim() <= max(dim, -dim - 1) or leaf.shape[dim] == 0 for leaf in leaves]:
        return _natively(torch._higher_order_ops.scan, combine_fn, init, xs, dim=dim, reverse=reverse)
    dim = dim % leaves[0].dim()
    leaves = [torch.movedim(leaf, dim, 0) if dim else leaf for leaf in leaves]
    if reverse:
        leaves = [torch.flip(leaf, [0]) for leaf in leaves]
    carry, outs = init, []
    for i in range(leaves[0].shape[0]):
        carry, out = combine_fn(carry, pytree.tree_unflatten([leaf.select(0, i) for leaf in leaves], spec))
        outs.append(out)
    stacked = _stacked(outs)
    if reverse:
        stacked = pytree.tree_map(lambda out: out.flip([0]), stacked)
    if dim:
        stacked = pytree.tree_map(lambda out: torch.movedim(out, 0, dim) if dim < out.dim() else out, stacked)
    return carry, stacked


def map_(f, xs, *args):
    """torch's map: a loop over the first dimension, whose results are stacked."""
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or not _are_tensors(leaves) or 0 in [leaf.dim() for leaf in leaves]:
        return _natively(torch._higher_order_ops.map, f, xs, *args)
    count = leaves[0].shape[0]
    if count == 0 or True in [leaf.shape[0] != count for leaf in leaves]:
        return _natively(torch._higher_order_ops.map, f, xs, *args)
    slices = [leaf.unbind(0) for leaf in leaves]
    return _stacked([f(pytree.tree_unflatten([s[i] for s in slices], spec), *args) for i in range(count)])


def _stacked(trees):
    """Trees of tensors as one tree of stacks."""
    flat = [pytree.tree_flatten(tree) for tree in trees]
    stacks = []
    for i, first in enumerate(flat[0][0]):
        stacks.append(None if first is None else torch.stack([leaves[i] for leaves, _ in flat]))
    return pytree.tree_unflatten(stacks, flat[0][1])


@disable(reason="a higher-order operator is asked for gradients, or cast automatically")
def _operate_natively(operator, args, kwargs):
    return operator(*args, **kwargs)


def _kernel_of(operator):
    return operator.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def call_higher_order(self, /, *args, **kwargs):
    """The operators themselves (torch.ops.higher_order): without gradients, the kernel for all devices."""
    kernel = _kernel_of(self)
    leaves = pytree.tree_leaves((args, kwargs))
    needs_grad = torch.is_grad_enabled() and True in [isinstance(a, torch.Tensor) and a.requires_grad for a in leaves]
    if kernel is None or needs_grad or torch.is_autocast_enabled("cpu"):
        return _operate_natively(self, args, kwargs)
    return kernel(*args, **kwargs)


# -- torch.func and checkpoints ----------------------------------------------------------------------------------------
def _gradients(outputs, inputs, grad_outputs, retain_graph, create_graph):
    """Called as it is: its operators are recorded, those of the backward pass too."""
    return torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused=True)


def gradients_of_a_transform(outputs, inputs, grad_outputs=None, retain_graph=False, create_graph=True):
    """torch.func's autograd.grad, without a word to torch.compile."""
    given = [None] * len(outputs) if grad_outputs is None else grad_outputs
    pairs = [(out, g) for out, g in zip(outputs, given, strict=True) if out.requires_grad]
    if not pairs:
        return tuple([torch.zeros_like(each) for each in inputs])
    wanted = None if grad_outputs is None else tuple([g for _, g in pairs])
    found = _gradients(tuple([out for out, _ in pairs]), inputs, wanted, retain_graph, create_graph)
    return tuple([torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs, strict=True)])


@disable(reason="a checkpoint saves memory for gradients, which are needed")
def _checkpoint_natively(function, args, kwargs):
    return checkpoints.checkpoint(function, *args, **kwargs)


def checkpoint(function, *args, **kwargs):
    """torch.utils.checkpoint: without gradients there is nothing to save, and it is a call."""
    options = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
    own = {name: value for name, value in kwargs.items() if name not in options}
    reentrant = kwargs.get("use_reentrant")
    usual = reentrant is not None and "context_fn" not in kwargs and not kwargs.get("debug") and not (reentrant and own)
    if torch.is_grad_enabled() or not usual:
        return _checkpoint_natively(function, args, kwargs)
    return function(*args, **own)


def get_error_on_graph_break():
    error = _C._set_error_on_graph_break(True)
    _C._set_error_on_graph_break(error)
    return error


# -- Tensors made of numbers -------------------------------------------------------------------------------------------
class _Listed:
    """A list from outside as guards make a tensor of it, and what the run has put behind."""

    def __init__(self, tensor, rest):
        self.tensor, self.rest = tensor, rest

    def shape(self):
        rest = _shape_of(self.rest) if self.rest else (0, *self.tensor.shape[1:])
        if rest is None or rest[1:] != self.tensor.shape[1:]:
            return None
        return (self.tensor.shape[0] + rest[0], *rest[1:])

    def filled(self, dtype, device):
        # By way of what torch.tensor rounds Python's numbers to first.
        exact = self.tensor.to(torch.float64, copy=True) if dtype.is_floating_point else self.tensor.clone()
        tensor = exact.to(torch.float32).to(dtype) if dtype.itemsize < 4 else exact.to(dtype)
        return torch.cat([tensor, _filled(self.rest, dtype, device)]) if self.rest else tensor


def _shape_of(data):
    """Of ints and floats in lists; None: something else is among them, or lists are not as long as others."""
    if isinstance(data, _Listed):
        return data.shape()
    if isinstance(data, (int, float, torch.SymInt, torch.SymFloat)) and not isinstance(data, bool):
        return ()
    shapes = {_shape_of(each) for each in data} if isinstance(data, (list, tuple)) else ()
    shape = shapes.pop() if len(shapes) == 1 else None
    return None if shape is None else (len(data), *shape)


def _filled(data, dtype, device):
    if isinstance(data, _Listed):
        return data.filled(dtype, device)
    if isinstance(data, (list, tuple)):
        return torch.stack([_filled(each, dtype, device) for each in data])
    return torch.full((), data, dtype=dtype, device=device)


def _holds_float(data):
    if isinstance(data, _Listed):
        return data.tensor.is_floating_point() or _holds_float(data.rest)
    if isinstance(data, (list, tuple)):
        return any(map(_holds_float, data))
    return isinstance(data, (float, torch.SymFloat))


def _numbers_in(data):
    """How many, but for those that are in a tensor already."""
    if isinstance(data, (list, tuple)):
        return sum(map(_numbers_in, data))
    return _numbers_in(data.rest) if isinstance(data, _Listed) else 1


def _is_listed(data):
    return any(map(_is_listed, data)) if isinstance(data, (list, tuple)) else isinstance(data, _Listed)


def _tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """torch.tensor by operators, which may be given numbers that differ between calls. None: not of this."""
    shape = _shape_of(data)
    if shape is None or _numbers_in(data) > 64 or requires_grad or pin_memory:
        return None
    holds_float = _holds_float(data)
    if dtype is None:
        dtype = torch.get_default_dtype() if holds_float else torch.int64
    if _is_listed(data):
        # Others ask whether each number fits.
        usual = dtype.is_floating_point or dtype is torch.bool or (dtype is torch.int64 and not holds_float)
        if not usual or torch.device(device or torch.get_default_device()).type != "cpu":
            return None
    return _filled(data, dtype, device)


def _new_tensor(self, data, *, dtype=None, device=None, **options):
    return _tensor(data, dtype=dtype or self.dtype, device=device or self.device, **options)


def _tensor_of(dtype):
    """Calling the class, whose tensors are on the CPU whatever the default device is."""

    def made(data):
        return _tensor(data, dtype=dtype or torch.get_default_dtype(), device="cpu")

    return made


# -- Copies ------------------------------------------------------------------------------------------------------------
_ATOMS = (float, int, str, bool, complex, type(None))


def _with_name(function, name):
    """The function, which is not known by its own name: what stands in for it may call it."""
    code = function.__code__.replace(co_qualname=name)
    return types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)


_deep_copy = _with_name(copy.deepcopy, "_deep_copy")


def deep_copy(x, memo=None, _nil=_deep_copy.__defaults__[-1]):
    """copy.deepcopy, which asks for the address of all it meets, also of a number that differs between calls."""
    return x if type(x) in _ATOMS else _deep_copy(x, memo, _nil)


@disable(reason="the copy of a tensor is a copy of its storage")
def _copy_natively(tensor, memo):
    return torch.Tensor.__deepcopy__(tensor, memo)


def deep_copy_of_tensor(self, memo):
    """Tensor.__deepcopy__, where the copy of its storage is a clone: nothing else lies in it, or shares it."""
    usual = type(self) is torch.Tensor and self.layout is torch.strided and self.device.type in ("cpu", "cuda")
    if not usual or not self.is_leaf or self.is_quantized or self.is_conj() or self.is_neg():
        return _copy_natively(self, memo)
    dense = self.is_contiguous() or (self.dim() == 4 and self.is_contiguous(memory_format=torch.channels_last))
    if not dense or not _C._owns_storage(self) or self.grad is not None or self.__dict__ or id(self) in memo:
        return _copy_natively(self, memo)
    with torch.no_grad():
        copied = self.clone()
    if self.requires_grad:
        copied.requires_grad_()
    memo[id(self)] = copied
    return copied


# -- Sizes made of numbers ---------------------------------------------------------------------------------------------
_SCALED = [name for name in dir(torch._C._nn) if "upsample_" in name]


def _with_sizes(function):
    """What F.interpolate calls, given the sizes that it would compute from the scale factors."""

    def scaled(input, size, *rest):
        *corners, factors = rest
        scales = [float(factor) for factor in factors]
        sizes = [int(input.size(i + 2) * scale) for i, scale in enumerate(scales)]
        return function(input, sizes, *corners, *scales)

    return scaled


def _parameter(module, name):
    """A name that differs between calls says which parameter is meant, if it is not looked for as attributes are."""
    return module._parameters[name] if name in module._parameters else getattr(module, name)


def parameter_by_index(parameters, index):
    if not isinstance(index, slice):
        return _parameter(parameters, parameters._get_abs_string_index(index))
    some = parameters.__class__()
    for i in range(*index.indices(len(parameters))):
        some.append(parameters[i])
    return some


def parameter_by_key(parameters, key):
    return _parameter(parameters, parameters._key_to_attr(key))


#: In place of native functions, by their names in observe/calls/cfunctions.def.
NATIVES = {
    "next map": _next_map,
    "next filter": _next_filter,
    "reversed": _reversed,
    "reduce": _reduced,
    "set state": _with_state,
    "list of numbers": _Listed,
    "torch._C._FunctionBase.apply": apply_function,
    "builtins.any": _any,
    "builtins.all": _all,
    "builtins.sum": _sum,
    "builtins.max": _max,
    "builtins.min": _min,
    "builtins.sorted": _sorted,
    "list": _gathered,
    "tuple": _tuple,
    "tuple.__new__": _new_tuple,
    "set": _set,
    "frozenset": _frozenset,
    "collections.deque": _deque,
    "dict": _with_pairs(dict, 0),
    "dict.__init__": _with_pairs(dict.__init__, 1),
    "dict.update": _with_pairs(dict.update, 1),
    "collections.OrderedDict": _with_pairs(collections.OrderedDict, 0),
    "collections.OrderedDict.__init__": _with_pairs(collections.OrderedDict.__init__, 1),
    "collections.OrderedDict.update": _with_pairs(collections.OrderedDict.update, 1),
    "collections.defaultdict": _with_pairs(collections.defaultdict, 1),
    "str.join": _join,
    "list.extend": _extend,
    "list.sort": _sort,
    "set.update": _update,
    "_collections._count_elements": _count_elements,
    "_functools.reduce": _reduce,
    "torch._C._VariableFunctionsClass.tensor": _tensor,
    "torch._C._VariableFunctionsClass.as_tensor": _tensor,
    "torch._C.TensorBase.new_tensor": _new_tensor,
    "torch._C.TensorBase": _tensor_of(None),
    "torch.FloatTensor": _tensor_of(torch.float32),
    "torch.DoubleTensor": _tensor_of(torch.float64),
    "torch.LongTensor": _tensor_of(torch.int64),
    **{f"torch._C._nn.{name}": _with_sizes(getattr(torch._C._nn, name)) for name in _SCALED},
}

#: In place of functions of torch in Python, by module and qualified name.
FUNCTIONS = {
    "torch._higher_order_ops.cond.cond": cond,
    "torch._higher_order_ops.while_loop.while_loop": while_loop,
    "torch._higher_order_ops.scan.scan": scan,
    "torch._higher_order_ops.map.map": map_,
    "torch._ops.HigherOrderOperator.__call__": call_higher_order,
    "torch._functorch.eager_transforms._autograd_grad": gradients_of_a_transform,
    "torch.utils.checkpoint.checkpoint": checkpoint,
    "torch._tensor.Tensor.__deepcopy__": deep_copy_of_tensor,
    "copy.deepcopy": deep_copy,
    "torch.nn.modules.container.ParameterList.__getitem__": parameter_by_index,
    "torch.nn.modules.container.ParameterDict.__getitem__": parameter_by_key,
    # torch._dynamo.error_on_graph_break, inside a compiled function.
    "torch._dynamo.utils._get_error_on_graph_break": get_error_on_graph_break,
    "torch._dynamo.utils._set_error_on_graph_break": _C._set_error_on_graph_break,
}


def let_higher_order_operators_through():
    """Higher-order operators dispatch in Python and ask no fallback: the recorder's key means nothing to them."""
    key = torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode")
    torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
    for operator in torch._ops._higher_order_ops.values():
        operator.fallthrough(key)


let_higher_order_operators_through()
