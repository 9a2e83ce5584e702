# torchbolt/stand_ins/copies.py
"""copy.deepcopy and Tensor.__deepcopy__."""

from __future__ import annotations

import copy
import types

import torch

from torchbolt import _C
from torchbolt.controls import disable

_ATOMS = (float, int, str, bool, complex, type(None))


def with_name(function, name):
    """The function, which is not known by its own name: what stands in for it may call it."""
    code = function.__code__.replace(co_qualname=name)
    return types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)


_deep_copy = with_name(copy.deepcopy, "_deep_copy")


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


#: By module and qualified name.
FUNCTIONS = {
    "torch._tensor.Tensor.__deepcopy__": deep_copy_of_tensor,
    "copy.deepcopy": deep_copy,
}
