# torchbolt/cli/compare.py
"""Two results of one call -> where and by how much they differ.

A compiler may round elsewhere than eager does, so equal bits are not to be expected. Both are compared with the same
call in float64 where the target has a float64 form, and the compiled error may be twice eager's and two units in the
last place of the largest number more; where it has none, the difference from eager is held against a bound by dtype.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from torchbolt.cli.state import seeded

# The largest difference from eager over the largest number, where nothing exact is to be had.
_BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def leaves(value, path: str = "result"):
    """(path, leaf) of nested containers, in order."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, tuple | list):
        items = enumerate(value)
    else:
        yield path, value
        return
    for key, item in items:
        yield from leaves(item, f"{path}[{key!r}]")


def _floats(value) -> list[torch.Tensor]:
    found = [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]
    return [t for t in found if t.is_floating_point() or t.is_complex()]


def _form(leaf):
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, tuple(leaf.shape), str(leaf.device)
    return type(leaf)


def other_form(expected, got) -> str:
    """What differs besides the values of floating point numbers; "": nothing."""
    a, b = list(leaves(expected)), list(leaves(got))
    if [path for path, _ in a] != [path for path, _ in b]:
        return f"other parts: {len(b)} of them, eager gives {len(a)}"
    for (path, x), (_, y) in zip(a, b, strict=True):
        if _form(x) != _form(y):
            return f"{path} is {_form(y)}, in eager {_form(x)}"
        if isinstance(x, torch.Tensor):
            if not (x.is_floating_point() or x.is_complex()) and not torch.equal(x, y):
                return f"{path} has other numbers"
        elif isinstance(x, bool | int | str | None) and x != y:
            return f"{path} is {y!r}, in eager {x!r}"
    return ""


def distance(expected, got) -> float:
    """The largest absolute difference of floating point numbers; inf where one is finite and the other is not."""
    worst = 0.0
    for a, b in zip(_floats(expected), _floats(got), strict=True):
        wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
        a, b = a.detach().to("cpu", wide), b.detach().to("cpu", wide)
        same = (a == b) | (a.isnan() & b.isnan())
        difference = torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=float("inf"))
        worst = max(worst, difference.max().item() if difference.numel() else 0.0)
    return worst


def _largest(value) -> float:
    return max((t.detach().abs().max().item() for t in _floats(value) if t.numel()), default=0.0)


def _rounding(value) -> float:
    """Two units in the last place of the largest number, by the coarsest dtype among the results."""
    steps = [torch.finfo(t.dtype).eps for t in _floats(value)]
    return 2 * max(steps, default=0.0) * _largest(value)


def _exact(target):
    """The target's call in float64; None where it has none."""
    widened = lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v  # noqa: E731
    try:
        fn = copy.deepcopy(target.fn).double() if isinstance(target.fn, torch.nn.Module) else target.fn
        args, kwargs = tuple(map(widened, target.args)), {k: widened(v) for k, v in target.kwargs.items()}
        wide = replace(target, fn=fn, args=args, kwargs=kwargs)
        return seeded(wide)
    except Exception:
        return None


def verdict(target, expected, got) -> dict:
    """Whether `got` is what eager's `expected` says, and the numbers that it rests on."""
    if problem := other_form(expected, got):
        return {"same": False, "why": problem, "difference": None}
    facts = {"difference": distance(expected, got), "largest": _largest(expected)}
    exact = _exact(target)
    if exact is not None and len(_floats(exact)) == len(_floats(expected)):
        facts["error_eager"], facts["error"] = distance(exact, expected), distance(exact, got)
        bound = 2 * facts["error_eager"] + _rounding(expected)
        facts |= {"allowed": bound, "same": facts["error"] <= bound}
    else:
        coarsest = max((_BOUNDS.get(t.dtype, 1e-3) for t in _floats(expected)), default=0.0)
        bound = coarsest * max(facts["largest"], 1e-9)
        facts |= {"allowed": bound, "same": facts["difference"] <= bound}
    facts["why"] = "" if facts["same"] else f"{facts.get('error', facts['difference']):.3g} is more than {bound:.3g}"
    return facts
