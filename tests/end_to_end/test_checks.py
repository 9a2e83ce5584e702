# tests/end_to_end/test_checks.py
"""Checks of data, whose other side is an error, end no region: the program checks, and eager raises.

PYTEST_DONT_REWRITE: the assertions are those that are compiled.
"""

from __future__ import annotations

import math

import pytest
import torch

import torchbolt


def asserted(x):
    assert (x > -5).all(), "too small"
    return x * 2 + 1


def asserted_not(x):
    y = x * 2
    assert not torch.isnan(y).any() and y.sum() < 1e6
    return y + 1


def raised(x):
    if torch.isnan(x).any():
        where = x.isnan().nonzero()
        raise ValueError(f"nan at {where}")
    return x * 2 + 1


def raised_else(x):
    if (x > -5).all():
        y = x * 2
    else:
        raise RuntimeError("too small")
    return y + 1


def floats(x):
    top = x.max().item()
    if top > 100 or top * 0.5 > 40.0:
        raise ValueError("large")
    assert -1e3 < top
    return x * top


def ints(x):
    first, second, third = x.nan_to_num().clamp(-100, 200).long().tolist()
    assert first < 100 and second >= -50
    assert first + second > -20 and third
    return x[: 1 + (third > 0)] if third == 99 else x * first


def classified(x):
    mean = x.mean().item()
    if not math.isfinite(mean) or math.isnan(mean):
        raise ValueError(f"the mean is {mean}")
    return x - mean


def sizes(x):
    n = x.nan_to_num().clamp(0, 200).long().max().item()
    torch._check(n >= 1)
    torch._check(n < 100, lambda: f"{n} is too much")
    torch._check(not n > 100)
    return torch.ones(n).sum() + x


def found(x):
    places = (x > 0).nonzero()
    assert places.shape[0] > 0
    assert len(places) != 7
    return x[places[:, 0]] * 2


def bools(x):
    if (x.sum() > 1e6).item():
        raise RuntimeError("large")
    torch._check(not bool((x != x).any()))
    return x + 1


def behind_a_write(x):
    x.add_(1)
    assert (x > -4).all()
    x.mul_(2)
    return x.sum()


def in_a_function(x):
    def checked(y):
        assert y.min() > -5
        return y * 2

    return [checked(x + i) for i in range(3)]


FUNCTIONS = [
    asserted,
    asserted_not,
    raised,
    raised_else,
    floats,
    classified,
    sizes,
    found,
    bools,
    behind_a_write,
    in_a_function,
]
INPUTS = [
    *([1.0, 2, 3], [2.0, 5, 1], [4.0, 4, 4], [3.0, 1, 8]),
    *([-7.0, -8, -9], [float("nan"), 1, 1], [500.0, 3, 2], [1e7, 1, 1], [0.0, 0, 0], [1.0, 2, 3]),
]


def outcome(fn, values):
    x = torch.tensor(values)
    try:
        return repr((fn(x), x))
    except (AssertionError, RuntimeError, ValueError) as error:
        return repr((error, x))


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_one_region(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for values in INPUTS[:4]:
        assert outcome(compiled, values) == outcome(fn, values)
    assert (torchbolt.stats()["regions"], torchbolt.stats()["eager_fallbacks"]) == (1, 0)
    for values in INPUTS:
        assert outcome(compiled, values) == outcome(fn, values)
    assert torchbolt.stats()["regions"] == 1


@pytest.mark.parametrize("fn", [*FUNCTIONS, ints], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("first", [4, 5, 6, 8])
def test_other_inputs_first(fn, first):
    compiled = torchbolt.compile(fn)
    for values in INPUTS[first:] + INPUTS * 3:
        assert outcome(compiled, values) == outcome(fn, values)


def test_other_branches_end_the_region():
    def fn(x):
        if (x > 2).any():
            return x * 2
        return x - 1

    def handled(x):
        try:
            if (x > 2).any():
                raise ValueError
            return x - 1
        except ValueError:
            return x * 2

    for each in (fn, handled):
        torchbolt.reset()
        compiled = torchbolt.compile(each)
        for values in INPUTS:
            assert outcome(compiled, values) == outcome(each, values)
        assert torchbolt.stats()["graph_breaks"] > 0
        assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_check_that_seldom_holds():
    def check(x):
        if x.sum() > 3:
            raise ValueError
        return x * 2

    def fn(x):
        try:
            return check(x)
        except ValueError:
            return x - 1

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(20):
        for values in INPUTS[8:]:
            assert outcome(compiled, values) == outcome(fn, values)
    assert 4 <= torchbolt.stats()["eager_fallbacks"] <= 6


def test_told_by_explain():
    compiled = torchbolt.compile(asserted)
    compiled(torch.ones(3))
    with pytest.raises(AssertionError, match="too small"):
        compiled(torch.full((3,), -9.0))
    calls = torchbolt.explain(asserted)(torch.ones(3))
    assert calls.graph_break_count == 0
    inner = torchbolt.api.compiled_of(compiled)
    (call,) = inner._eager_calls()
    assert "a check does not hold" in call["why"] and "test_checks.py" in call["why"]
    assert call["cause"] == "check_fails"


def test_under_gradients():
    def fn(x):
        y = x * 3
        assert (y > -9).all()
        return (y * y).sum()

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for values in INPUTS[:4] * 2:
        a, b = torch.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
        compiled(a).backward()
        fn(b).backward()
        assert torch.equal(a.grad, b.grad)
    with pytest.raises(AssertionError):
        compiled(torch.full((3,), -9.0, requires_grad=True))
