# torchbolt/stand_ins/versions.py
"""What newer versions of torch do in C, written in Python as older ones had it.

2.14    torch.autograd.Function.apply binds defaults and asks for transforms of torch.func itself. Operators that
        are defined in Python go to their kernels without torch's dispatcher, which is where they are recorded.
"""

from __future__ import annotations

import inspect
import types

import torch
from torch.autograd.function import _SingleLevelFunction

#: Function.apply is the method of its base itself.
APPLIES_IN_C = isinstance(vars(torch.autograd.Function)["apply"], types.ClassMethodDescriptorType)


def arguments_of_apply(cls, args, kwargs):
    """The arguments of cls.forward. None: the call is torch's own, for transforms and for errors."""
    binds = cls.setup_context is not _SingleLevelFunction.setup_context
    if torch._C._are_functorch_transforms_active():
        return None
    if binds:
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
    return None if kwargs else args


def call_operator(self, /, *args, **kwargs):
    """OpOverload.__call__, through the dispatcher."""
    return self._cpp_dispatch_handle(*args, **kwargs)


FUNCTIONS = {}
if hasattr(torch._ops.OpOverload, "_can_enable_pyobj_dispatch"):
    FUNCTIONS["torch._ops.OpOverload.__call__"] = call_operator
