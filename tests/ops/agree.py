# tests/ops/agree.py
"""Operators below autograd, called directly, compiled against eager.

They are what a recorded backward pass consists of. Each must be as exact as eager's (compared with float64, at most
twice eager's error), give what lies in memory as eager's does, and stay no call of ATen where it has a row.
"""

import torch

import torchbolt
from bench import compare

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def lain_otherwise(x):
    """The values of x as (name, tensor), laid out in the ways that tensors come in."""
    yield "dense", x.contiguous()
    if x.dim() > 1:
        yield "transposed", x.transpose(0, -1).contiguous().transpose(0, -1)
        wide = torch.zeros(*x.shape[:-1], x.shape[-1] + 3, dtype=x.dtype)
        wide[..., 1:-2] = x
        yield "part of a wider one", wide[..., 1:-2]
    if x.dim() == 4:
        yield "channels last", x.contiguous(memory_format=torch.channels_last)


def widened(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return [widened(v) for v in value] if isinstance(value, (list, tuple)) else value


def copied(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


def as_exact(mine, theirs, exact, where=""):
    """Is every tensor of `mine` about as near to float64's as eager's?"""
    for a, b, e in zip(*(compare.floating(v) for v in (mine, theirs, exact)), strict=True):
        ours, eagers = compare.max_error(a, e), compare.max_error(b, e)
        floor = compare.rounding_floor(e[e.isfinite()], b.dtype)
        if b.dtype == torch.float64:  # eager's own result is what it is compared with
            floor = 16 * floor + 1e-14
        assert ours <= 2 * eagers + floor, f"{where}: error {ours}, eager's {eagers}"
    assert compare.exact_parts(mine) == compare.exact_parts(theirs), where


def check(fn, *args, extern=0, wide=None, written=(), exact=None):
    """`wide`: arguments for the run in float64. `written`: places of arguments that fn writes to."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    with torch.no_grad():
        wide = wide or [widened(copied(a)) for a in args]
        exact = [fn(*wide), [wide[i] for i in written]] if exact is None else [exact, []]
        for _ in range(2):
            given, given_eager = ([copied(a) if i in written else a for i, a in enumerate(args)] for _ in range(2))
            theirs = [fn(*given_eager), [given_eager[i] for i in written]]
            mine = [compiled(*given), [given[i] for i in written]]
            assert compare.form(mine) == compare.form(theirs)
            as_exact(mine, theirs, exact, f"{[getattr(a, 'dtype', a) for a in args]}")
    regions = torchbolt.api.compiled_of(compiled)._regions()
    assert len(regions) == 1 and regions[0]["compiled"]
    assert regions[0]["extern_calls"] == extern
    assert torchbolt.stats()["eager_fallbacks"] == 0
    return regions[0]
