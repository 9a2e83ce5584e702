"""The tables run strict: a failure inside the compiler is an error, not a fall-back to eager."""

import os

import pytest
import torch

os.environ.setdefault("TORCHBOLT_STRICT", "1")


@pytest.fixture(autouse=True)
def thread_as_it_was():
    """A strict error leaves `with` blocks without their ends: what they set must not reach the next row."""
    yield
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    torch.set_default_dtype(torch.float32)
    torch.clear_autocast_cache()
    while torch.autocast_decrement_nesting() > 0:
        pass
    while torch.autocast_increment_nesting() < 0:
        pass
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
