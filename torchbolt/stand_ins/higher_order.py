# torchbolt/stand_ins/higher_order.py
"""Higher-order operators (torch.cond, while_loop, scan, map): what they mean, written out."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from torchbolt import _C
from torchbolt.controls import disable


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
    """Looked up unseen when a call is recorded: an operator keeps its kernels."""
    return operator.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


_C._mark(_kernel_of, "constant", None)


def call_higher_order(self, /, *args, **kwargs):
    """The operators themselves (torch.ops.higher_order): without gradients, the kernel for all devices.

    That of associative_scan is made of operators that autograd follows, in memory that grows with the length of the
    scan. torch's own rule for its gradients has a matrix of all pairs of steps.
    """
    kernel = _kernel_of(self)
    leaves = pytree.tree_leaves((args, kwargs))
    needs_grad = torch.is_grad_enabled() and True in [isinstance(a, torch.Tensor) and a.requires_grad for a in leaves]
    if kernel is None or (needs_grad and self.name() != "associative_scan") or torch.is_autocast_enabled("cpu"):
        return _operate_natively(self, args, kwargs)
    return kernel(*args, **kwargs)


def let_higher_order_operators_through():
    """Higher-order operators dispatch in Python and ask no fallback: the recorder's key means nothing to them."""
    key = torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode")
    torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
    for operator in torch._ops._higher_order_ops.values():
        operator.fallthrough(key)


#: By module and qualified name.
FUNCTIONS = {
    "torch._higher_order_ops.cond.cond": cond,
    "torch._higher_order_ops.while_loop.while_loop": while_loop,
    "torch._higher_order_ops.scan.scan": scan,
    "torch._higher_order_ops.map.map": map_,
    "torch._ops.HigherOrderOperator.__call__": call_higher_order,
}
