# torchbolt/stand_ins/tensors.py
"""Tensors made of Python's numbers, and sizes computed from them: written as operators, since the numbers may differ
between calls."""

from __future__ import annotations

import torch


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


def _of_array(memory, dtype, device, copy):
    """What torch makes of one of numpy's arrays, given the tensor that shares its memory. None: not of this."""
    if device is None and torch.get_default_device().type != "cpu":
        return None
    made = memory.to(device=device or memory.device, dtype=dtype or memory.dtype, copy=copy)
    return made.contiguous() if copy else made


def _tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """torch.tensor by operators, which may be given numbers that differ between calls. None: not of this."""
    if isinstance(data, torch.Tensor):
        return None if requires_grad or pin_memory else _of_array(data, dtype, device, copy=True)
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


def _as_tensor(data, *, dtype=None, device=None):
    if isinstance(data, torch.Tensor):
        return _of_array(data, dtype, device, copy=False)
    return _tensor(data, dtype=dtype, device=device)


def _new_tensor(self, data, *, dtype=None, device=None, **options):
    return _tensor(data, dtype=dtype or self.dtype, device=device or self.device, **options)


def _tensor_of(dtype):
    """Calling the class, whose tensors are on the CPU whatever the default device is."""

    def made(data):
        return _tensor(data, dtype=dtype or torch.get_default_dtype(), device="cpu")

    return made


def _linspace(start, end, steps, *, dtype=None, device=None, **options):
    """From both ends, as ATen does."""
    dtype = dtype or torch.get_default_dtype()
    numbers = all(isinstance(n, (int, float, torch.SymInt, torch.SymFloat)) for n in (start, end, steps))
    if any(options.values()) or not numbers or dtype not in (torch.float32, torch.float64) or not steps > 1:
        return None
    first, last, count = (torch.full((), n, dtype=dtype, device=device) for n in (start, end, steps - 1))
    step, places = (last - first) / count, torch.arange(steps, device=device)
    back = (steps - 1 - places).to(dtype)
    return torch.where(places < steps // 2, first + places.to(dtype) * step, last - back * step)


_SCALED = [name for name in dir(torch._C._nn) if "upsample_" in name]


def _with_sizes(function):
    """What F.interpolate calls, given the sizes that it would compute from the scale factors."""

    def scaled(input, size, *rest):
        *corners, factors = rest
        scales = [float(factor) for factor in factors]
        sizes = [int(input.size(i + 2) * scale) for i, scale in enumerate(scales)]
        return function(input, sizes, *corners, *scales)

    return scaled


#: By their names in observe/calls/cfunctions.def.
NATIVES = {
    "list of numbers": _Listed,
    "torch._C._VariableFunctionsClass.tensor": _tensor,
    "torch._C._VariableFunctionsClass.as_tensor": _as_tensor,
    "torch._C._VariableFunctionsClass.linspace": _linspace,
    "torch._C.TensorBase.new_tensor": _new_tensor,
    "torch._C.TensorBase": _tensor_of(None),
    "torch.FloatTensor": _tensor_of(torch.float32),
    "torch.DoubleTensor": _tensor_of(torch.float64),
    "torch.LongTensor": _tensor_of(torch.int64),
    **{f"torch._C._nn.{name}": _with_sizes(getattr(torch._C._nn, name)) for name in _SCALED},
}
