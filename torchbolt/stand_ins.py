"""Python in place of native functions that call Python back.

The recorder runs these instead, so that what they call is part of the recording like any Python. Each is given
what the native function is bound to, then its arguments. None makes a generator for
native code to run: a region could not end inside.
"""

from __future__ import annotations

import torch

from torchbolt import _C
from torchbolt.controls import disable


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


STAND_INS = {"torch._C._FunctionBase.apply": apply_function}
