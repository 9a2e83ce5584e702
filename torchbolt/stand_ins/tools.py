# torchbolt/stand_ins/tools.py
"""What speaks to profilers and to torch's own compiler, and computes nothing."""

from __future__ import annotations

import torch

from torchbolt import _C


def enter_record_function(self):
    """record_function("name") inside a region names nothing: its kernels are not the lines it stood around."""
    self.run_callbacks_on_exit = False
    return self


_C._mark(torch.autograd.profiler.record_function.__enter__, "substitute", enter_record_function)


_C._mark(torch.autograd.profiler.record_function.__enter__, "substitute", enter_record_function)


def get_error_on_graph_break():
    error = _C._set_error_on_graph_break(True)
    _C._set_error_on_graph_break(error)
    return error


def check_is_size(i, message=None, *, max=None):
    """Printed graphs are full of it. What it tells a tracer, and that it is deprecated, is nothing to a region."""
    torch._check(i >= 0, message)
    if max is not None:
        torch._check(i <= max, message)


if hasattr(torch, "_check_is_size"):
    _C._mark(torch._check_is_size, "substitute", check_is_size)


#: By module and qualified name: torch._dynamo.error_on_graph_break, inside a compiled function.
FUNCTIONS = {
    "torch._dynamo.utils._get_error_on_graph_break": get_error_on_graph_break,
    "torch._dynamo.utils._set_error_on_graph_break": _C._set_error_on_graph_break,
}
