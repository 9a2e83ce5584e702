# torchbolt/stand_ins/gradients.py
"""What torch does for the sake of gradients: checkpoints, backward passes, torch.func.grad."""

from __future__ import annotations

import torch
from torch.utils import checkpoint as checkpoints

from torchbolt import _C
from torchbolt.controls import disable


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


class _Policy:
    """What create_selective_checkpoint_contexts gives while it is recorded: one policy for both passes."""

    def __init__(self, function_or_list, allow_cache_entry_mutation):
        self.function_or_list, self.allow_cache_entry_mutation = function_or_list, allow_cache_entry_mutation

    def __iter__(self):
        return iter(_contexts_natively(self.function_or_list, self.allow_cache_entry_mutation))


@disable(reason="a selective checkpoint is not used as usual")
def _contexts_natively(policy_fn_or_list, allow_cache_entry_mutation):
    return checkpoints.create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation)


def selective_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """torch.utils.checkpoint.create_selective_checkpoint_contexts, for checkpoint() below."""
    if isinstance(policy_fn_or_list, list):
        usual = False not in [isinstance(op, torch._ops.OpOverload) for op in policy_fn_or_list]
    else:
        usual = callable(policy_fn_or_list)
    if not usual:
        return _contexts_natively(policy_fn_or_list, allow_cache_entry_mutation)
    return _Policy(policy_fn_or_list, allow_cache_entry_mutation)


def _kept_policy(policy):
    """The number of (name, overload, arguments, results) -> is it to be saved? Run unseen."""
    saving = checkpoints.CheckpointPolicy.MUST_SAVE, checkpoints.CheckpointPolicy.PREFER_SAVE

    def asked(name, overload, args, results):
        operator = getattr(_found(torch.ops, name.replace("::", ".")), overload or "default")
        if isinstance(policy, list):
            return operator in policy
        output = results[0] if len(results) == 1 else results
        context = _context_of(output)
        answer = policy(context, operator, *args)
        return answer if isinstance(answer, bool) else answer in saving

    return _C._keep_callable(asked)


def _found(space, path):
    for name in path.split("."):
        space = getattr(space, name)
    return space


def _context_of(output):
    """Older versions do not tell what an operator gave."""
    try:
        return checkpoints.SelectiveCheckpointContext(is_recompute=False, op_output=output)
    except TypeError:
        return checkpoints.SelectiveCheckpointContext(is_recompute=False)


_C._mark(_kept_policy, "constant", None)


def _next_node():
    """The number that autograd gives the next node of this thread."""
    return torch.autograd._get_sequence_nr()


def _is_kept_by_its_node(result, first):
    """Is it what an operator since then gave, whose node reads it in the backward pass (a relu's)?"""
    node = result.grad_fn
    return node is not None and node._sequence_nr() >= first and hasattr(type(node), "_saved_result")


_C._mark(_next_node, "constant", None)
_C._mark(_is_kept_by_its_node, "constant", None)


def _of_its_own(result, known, first):
    """What a checkpoint gives may be written to: the nodes within read what comes again. `known`: what is as it is."""
    if type(result) is tuple or type(result) is list:
        return type(result)([_of_its_own(each, known, first) for each in result])
    for given, own in known:
        if given is result:
            return own
    if not isinstance(result, torch.Tensor) or not _is_kept_by_its_node(result, first):
        return result
    known.append((result, result.clone()))
    return known[-1][1]


def checkpoint(function, *args, **kwargs):
    """torch.utils.checkpoint: a call, between marks for who decides what is kept (src/autograd/checkpoint.h).

    A reentrant one gives no gradients where none of its arguments needs one. Contexts that are no selective policy are
    entered natively: they may do anything.
    """
    options = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
    own = {name: value for name, value in kwargs.items() if name not in options}
    reentrant = kwargs.get("use_reentrant")
    context_fn = kwargs.get("context_fn", checkpoints.noop_context_fn)
    selective = context_fn is not checkpoints.noop_context_fn
    usual = reentrant is not None and not kwargs.get("debug") and not (reentrant and (own or selective))
    if not usual:
        return _checkpoint_natively(function, args, kwargs)
    if not torch.is_grad_enabled():
        return function(*args, **own)
    if reentrant and True not in [isinstance(a, torch.Tensor) and a.requires_grad for a in args]:
        return _checkpoint_natively(function, args, kwargs)
    if selective:
        policy = context_fn()
        if not isinstance(policy, _Policy):
            kwargs["context_fn"] = lambda: policy
            return _checkpoint_natively(function, args, kwargs)
        _BEGIN_CHECKPOINT(_kept_policy(policy.function_or_list))
    else:
        _BEGIN_CHECKPOINT()
    first = _next_node()
    given = [(each, each) for each in (*args, *own.values())]
    result = _of_its_own(function(*args, **own), given, first)
    _END_CHECKPOINT()
    return result


_GRADIENTS = torch.ops.torchbolt.gradients.default
_FOLLOWED_GRADIENTS = torch.ops.torchbolt.followed_gradients.default


def run_backward(
    places, outputs, tangents, retain_graph, create_graph, inputs, allow_unreachable=False, accumulate_grad=False
):
    """autograd's engine, as torch.autograd calls it, for gradients of these tensors (src/record/backward.h).

    What comes first is the observer's; the rest is the engine's own list of arguments. Gradients are accumulated as
    AccumulateGrad does it: what the operator gives is memory of its own, which a leaf without a gradient takes over.
    """
    if create_graph:
        found = _FOLLOWED_GRADIENTS(outputs, tangents, places)
    else:
        found = _GRADIENTS(outputs, tangents, places, retain_graph, accumulate_grad)
    if not accumulate_grad:
        if not allow_unreachable and True in [g is None for g in found]:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        return tuple(found)
    with torch.no_grad():
        for leaf, gradient in zip(places, found, strict=True):
            if gradient is None:
                continue
            if leaf.grad is None:
                leaf.grad = gradient
            else:
                leaf.grad.add_(gradient)
    return ()


#: By their names in observe/calls/cfunctions.def; the engine has none there.
NATIVES = {"run_backward": run_backward}

#: By module and qualified name.
FUNCTIONS = {
    "torch._functorch.eager_transforms._autograd_grad": gradients_of_a_transform,
    "torch.utils.checkpoint.checkpoint": checkpoint,
    "torch.utils.checkpoint.create_selective_checkpoint_contexts": selective_contexts,
}
