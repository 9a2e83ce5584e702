# torchbolt/cli/state.py
"""A target -> a call of it from the state that it had at the beginning, so that two calls can be compared.

A training step writes parameters, gradients and the optimizer's state, a module in training its buffers, others their
arguments. Modules and optimizers are found where the target's function finds them: it is one, it is bound to an object
that holds some, they are among its globals, in its closure or among its arguments.
"""

from __future__ import annotations

import copy
import inspect
import types

import torch


def seeded(target, fn=None):
    """What `fn`, or the target itself, gives from the state that was there at the first of such calls, and with the
    same random numbers. A copy, since that state is there again behind it."""
    if target.state is None:
        target.state = [_kept(each) for each in _holders(target)]
    for put_back in target.state:
        put_back()
    torch.manual_seed(0)
    own = type(target)(target.name, target.fn, copy.deepcopy(target.args), copy.deepcopy(target.kwargs))
    own.gradients = target.gradients
    try:
        return copied(own.call(fn))
    finally:
        for put_back in target.state:
            put_back()


def copied(value):
    """A copy of containers and numbers, in memory of its own."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [copied(item) for item in value]
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _holders(target) -> list:
    """Modules and optimizers that a call may write to."""
    found = {}
    for value in [*_reached(target.fn), *target.args, *target.kwargs.values()]:
        for each in [value, *getattr(value, "__dict__", {}).values()]:
            if isinstance(each, torch.nn.Module | torch.optim.Optimizer):
                found[id(each)] = each
    return list(found.values())


def _reached(fn):
    """`fn`, and what its code names; functions that it calls are followed as well."""
    seen, todo = set(), [fn]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, types.ModuleType):
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, types.MethodType):
            todo += [each.__self__, each.__func__]
        elif isinstance(each, types.FunctionType):
            named = inspect.getclosurevars(each)
            todo += [*named.nonlocals.values(), *named.globals.values()]


def _kept(holder):
    """Puts back what the holder is now."""
    return _kept_module(holder) if isinstance(holder, torch.nn.Module) else _kept_optimizer(holder)


def _kept_module(module):
    rows = [(t, copied(t), copied(t.grad)) for t in [*module.parameters(), *module.buffers()]]

    def put_back():
        with torch.no_grad():
            for tensor, value, grad in rows:
                if not torch.equal(tensor, value):  # a write makes weights be packed again
                    tensor.copy_(value)
                if tensor.grad is not None or grad is not None:
                    tensor.grad = copied(grad)

    return put_back


def _kept_optimizer(optimizer):
    kept = copy.deepcopy(optimizer.state_dict())
    return lambda: optimizer.load_state_dict(copy.deepcopy(kept))
