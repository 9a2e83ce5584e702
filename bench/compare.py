# bench/compare.py
"""Two results of one call -> how they differ: in form, and in error against float64.

"As close as eager": float32 and bfloat16 results differ from the exact ones by rounding, and a compiler
may round elsewhere than eager does. Both are compared with the same model run in float64, and the
compiled error may be at most twice eager's. `rounding_floor` is added: where eager's result happens to
be exact to the last bit (a tiny model, a lucky sum), twice its error would forbid even the rounding of
the result.

Does not: decide what passes; the tests and the benchmark do.
"""

from __future__ import annotations

import torch


def leaves(value, path="out"):
    """The (path, leaf) pairs of nested containers, in order. ModelOutput is a dict."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (tuple, list)):
        items = enumerate(value)
    else:
        yield path, value
        return
    for key, item in items:
        yield from leaves(item, f"{path}.{key}")


def form(value):
    """Everything of a result but its numbers: classes, keys, dtypes, sizes, strides, devices."""
    if isinstance(value, torch.Tensor):
        return (
            type(value),
            value.dtype,
            tuple(value.shape),
            value.stride(),
            value.device,
            value.requires_grad,
        )
    if isinstance(value, dict):
        return (type(value), tuple((k, form(v)) for k, v in value.items()))
    if isinstance(value, (tuple, list)):
        return (type(value), tuple(form(v) for v in value))
    return (type(value), value)


def floating(value) -> list[torch.Tensor]:
    """The floating point tensors of a result, complex ones as pairs."""
    found = [t for _, t in leaves(value) if isinstance(t, torch.Tensor)]
    found = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in found]
    return [t for t in found if t.is_floating_point()]


def exact_parts(value) -> list:
    """The integer and bool tensors of a result, as nested lists: these must be equal, not close."""
    found = [t for _, t in leaves(value) if isinstance(t, torch.Tensor)]
    return [t.tolist() for t in found if not t.is_floating_point() and not t.is_complex()]


def max_error(value, reference) -> float:
    """The largest absolute difference of a result from its float64 reference; inf where one is not finite."""
    got, want = floating(value), floating(reference)
    assert len(got) == len(want), f"{len(got)} floating tensors, the reference has {len(want)}"
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        g, w = g.to(torch.float64), w.to(torch.float64)
        same = (g == w) | (g.isnan() & w.isnan())
        difference = torch.where(same, 0.0, (g - w).abs())
        worst = max(worst, float(difference.nan_to_num(nan=float("inf")).max()) if g.numel() else 0.0)
    return worst


def rounding_floor(reference, dtype: torch.dtype) -> float:
    """Two units in the last place, in `dtype`, of the largest value of the reference."""
    largest = max((float(t.abs().max()) for t in floating(reference) if t.numel()), default=0.0)
    return 2 * torch.finfo(dtype).eps * largest
