"""What torch does for the sake of gradients: autograd.Function.apply, checkpoints, backward passes, torch.func.grad."""

from __future__ import annotations

import torch
from torch.utils import checkpoint as checkpoints

from torchbolt import _C
from torchbolt.controls import disable


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


class _Context(torch.autograd.function.FunctionCtx):
    """The ctx of an autograd.Function whose two passes are Python's: saved_tensors are given to the second."""

    materialize_grads = True
    to_save = non_differentiable = dirty_tensors = ()
    saved_tensors = ()


def _kept_by(ctx):
    """The names and tensors of what a forward pass has left in its ctx, beside what it has saved."""
    return [(name, value) for name, value in vars(ctx).items() if isinstance(value, torch.Tensor)]


def _backward_of(cls, ctx):
    """(saved, gradients) -> the gradients of the inputs, by the class's backward pass."""
    state = {name: value for name, value in vars(ctx).items() if name not in _OWN}
    names = [name for name, _ in _kept_by(ctx)]
    there = [t is not None for t in ctx.to_save]
    own_vjp = cls.vjp is not torch.autograd.Function.vjp
    backward = cls.vjp if own_vjp else cls.backward

    def run(saved, gradients):
        context = _Context()
        vars(context).update(state)
        rest = iter(saved)
        context.saved_tensors = tuple([next(rest) if there_is else None for there_is in there])
        vars(context).update(zip(names, rest, strict=True))
        found = backward(context, *gradients)
        found = found if isinstance(found, tuple) else (found,)
        needed = context.needs_input_grad
        if len(found) < len(needed) or any(g is not None for g in found[len(needed) :]):
            raise RuntimeError(
                f"function {cls.__name__}Backward returned an incorrect number of gradients "
                f"(expected {len(needed)}, got {len(found)})"
            )
        return [g if needs else None for g, needs in zip(found, needed, strict=False)]

    for name in names:
        state.pop(name)
    return run


#: Attributes of a ctx that torch's own methods set.
_OWN = ("to_save", "non_differentiable", "dirty_tensors", "materialize_grads", "saved_for_forward", "saved_tensors")


def apply_openly(cls, *args):
    """autograd.Function.apply of what needs gradients, so that the operators of both passes can be recorded.

    The forward pass runs here; torchbolt::function (src/autograd/function.h) puts the node behind what it gives.
    """
    ctx = _Context()
    ctx.needs_input_grad = tuple([isinstance(a, torch.Tensor) and a.requires_grad for a in args])
    with torch.no_grad():
        if cls.setup_context is torch.autograd.function._SingleLevelFunction.setup_context:
            outputs = cls.forward(ctx, *args)
        else:
            outputs = cls.forward(*args)
            cls.setup_context(ctx, args, outputs)
    if ctx.dirty_tensors:
        raise NotImplementedError(f"{cls.__name__} writes to its inputs (mark_dirty)")
    given = outputs if isinstance(outputs, tuple) else (outputs,)
    tensors = [o for o in given if isinstance(o, torch.Tensor)]
    fixed = [id(t) for t in ctx.non_differentiable]
    saved = [t for t in ctx.to_save if t is not None] + [t for _, t in _kept_by(ctx)]
    inputs = [a if isinstance(a, torch.Tensor) else None for a in args]
    differentiable = [id(t) not in fixed for t in tensors]
    number = _C._keep_backward(_backward_of(cls, ctx))
    results = iter(
        torch.ops.torchbolt.function(number, inputs, tensors, saved, differentiable, bool(ctx.materialize_grads))
    )
    given = tuple([next(results) if isinstance(o, torch.Tensor) else o for o in given])
    return given if isinstance(outputs, tuple) else given[0]


def _output(ctx, args, output):
    """An input that is given back unchanged becomes a view of it."""
    if not isinstance(output, torch.Tensor) or not _is_among(output, args):
        return output
    if _is_among(output, ctx.dirty_tensors or ()):
        return output
    return output.view_as(output)


def _is_among(wanted, objects):
    return id(wanted) in [id(candidate) for candidate in objects]


def _gradients(outputs, inputs, grad_outputs, retain_graph, create_graph):
    """Called as it is: its operators are recorded, those of the backward pass too."""
    return torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused=True)


_C._mark(_gradients, "allow_in_graph", None)


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


_BEGIN_CHECKPOINT = torch.ops.torchbolt.begin_checkpoint.default
_END_CHECKPOINT = torch.ops.torchbolt.end_checkpoint.default


def checkpoint(function, *args, **kwargs):
    """torch.utils.checkpoint: a call, between marks for who decides what is kept (src/autograd/checkpoint.h).

    A reentrant one gives no gradients where none of its arguments needs one. One with contexts of its own (selective
    policies) asks for each operator whether it is kept, and those two run natively.
    """
    options = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
    own = {name: value for name, value in kwargs.items() if name not in options}
    reentrant = kwargs.get("use_reentrant")
    usual = reentrant is not None and "context_fn" not in kwargs and not kwargs.get("debug") and not (reentrant and own)
    if not usual:
        return _checkpoint_natively(function, args, kwargs)
    if not torch.is_grad_enabled():
        return function(*args, **own)
    if reentrant and True not in [isinstance(a, torch.Tensor) and a.requires_grad for a in args]:
        return _checkpoint_natively(function, args, kwargs)
    _BEGIN_CHECKPOINT()
    result = function(*args, **own)
    _END_CHECKPOINT()
    return result


_GRADIENTS = torch.ops.torchbolt.gradients.default


def run_backward(
    leaves, outputs, tangents, retain_graph, create_graph, inputs, allow_unreachable=False, accumulate_grad=False
):
    """autograd's engine, as torch.autograd calls it, of a graph that has these leaves (src/record/backward.h).

    What comes first is the observer's; the rest is the engine's own list of arguments. Gradients are accumulated as
    AccumulateGrad does it: what the operator gives is memory of its own, which a leaf without a gradient takes over.
    """
    found = _GRADIENTS(outputs, tangents, leaves, retain_graph, accumulate_grad)
    if not accumulate_grad:
        if not allow_unreachable and True in [g is None for g in found]:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        return tuple(found)
    with torch.no_grad():
        for leaf, gradient in zip(leaves, found, strict=True):
            if gradient is None:
                continue
            if leaf.grad is None:
                leaf.grad = gradient
            else:
                leaf.grad.add_(gradient)
    return ()


#: By their names in observe/calls/cfunctions.def; the engine has none there.
NATIVES = {"torch._C._FunctionBase.apply": apply_function, "run_backward": run_backward}

#: By module and qualified name.
FUNCTIONS = {
    "torch._functorch.eager_transforms._autograd_grad": gradients_of_a_transform,
    "torch.utils.checkpoint.checkpoint": checkpoint,
}
