# tests/end_to_end/test_numpy_numbers.py
"""numpy's numbers that differ between calls (a learning rate, a size): one program for all of them, as for Python's.

Their arithmetic and their types are numpy's own; operators take the numbers of Python's that they stand for.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import torchbolt

FLOATS = [0.5, 0.25, 3.0, -1.5, 1e-3, 0.5]
INTS = [3, 5, 4, 7, 2, 3]


def in_all_places(x, a):
    return a * x, x / a, x - a, a - x, a + x, a / (x.abs() + 1), x + x * a, x.abs() ** a, abs(a) ** x, a < x, x == a


def arguments(x, a):
    made = torch.full((2,), a), x.masked_fill(x > 0, a), x.new_full((2,), a), x.clamp(min=a)
    return *made, torch.add(x, x, alpha=a), F.leaky_relu(x, a), F.layer_norm(x, (5,), eps=abs(a))


def arithmetic(x, a):
    b = (a * 2 - 1) / 3
    return x * b, x * -a, x + abs(a) * 0.5, a, b, a * 3, [a + 1], {"a": 2 - a}, a**2, a // 2, a > 1, float(a), int(a)


def mathematics(x, a):
    return x * math.sqrt(a * a + 1), x * math.cos(a), x + max(a, 0.1), x * round(a, 1), x + math.pi * a


def in_place(x, a):
    y = x.clone()
    y *= a
    y.add_(x, alpha=a).addcmul_(x, x, value=a)
    return y


def branches(x, a):
    return x * a if a > 0 else x - a, x + 1 if a else x, isinstance(a, float), isinstance(a, int), type(a) is np.float64


def made_of_numbers(x, a):
    return torch.tensor(a), torch.tensor([a, 1]), torch.as_tensor(a), x.new_tensor(a)


def as_size(x, n):
    return x.repeat(n, 1), torch.zeros(n, 3), x[: n // 2], torch.arange(n), x.new_ones(int(n))


def as_index(x, n):
    return x[n % 6], x.narrow(0, n % 3, 2), x[n % 2 :]


def shown(x, a):
    return x * a, f"{a}", f"{a:.3f}", str(a), repr(a), "%s" % a


def same(got, want):
    if isinstance(want, torch.Tensor):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
    elif isinstance(want, (list, tuple, dict)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(got[a], want[a]) if isinstance(want, dict) else same(a, b)
    else:
        assert type(got) is type(want) and repr(got) == repr(want)


def run(fn, numbers, compiled):
    torchbolt.reset()
    fast = torchbolt.compile(fn, recompile_limit=32)
    x = torch.randn(6, 5)
    for number in numbers:
        same(fast(x, number), fn(x, number))
    assert compiled is None or torchbolt.stats()["regions"] == compiled
    assert torchbolt.stats()["eager_fallbacks"] == 0


ROWS = [
    (in_all_places, 2),
    (arguments, 2),
    # A branch on a > 1, and int(a) of a negative number has no symbol.
    (arithmetic, 4),
    # max(-1.5, 0.1) is a number of Python's.
    (mathematics, 3),
    (in_place, 2),
    (branches, 3),
    (made_of_numbers, None),
    (shown, 2),
]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fn, compiled", ROWS, ids=[row[0].__name__ for row in ROWS])
def test_floats(fn, compiled, kind):
    run(fn, [kind(a) for a in FLOATS], compiled)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fn", [in_all_places, in_place, as_size, as_index, made_of_numbers, shown])
def test_ints(fn, kind):
    run(fn, [kind(n) for n in INTS], None if fn in (made_of_numbers, as_index, as_size) else 2)


def test_kinds_are_told_apart():
    run(
        lambda x, a: (x * a, a),
        [0.5, np.float64(0.5), np.float32(0.5), np.float64(0.25), 0.25, np.int64(2), True],
        None,
    )


def test_beside_numbers_out_of_tensors():
    run(lambda x, a: (x * (x.sum().item() * a), x.sum().item() > a), [np.float64(a) for a in FLOATS], None)
    run(lambda x, a: x * max(x.abs().sum().item(), a), [np.float64(a) for a in (1000.0, 0.5, 2000.0, 0.25)], None)


def test_a_learning_rate_of_numpys():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rates = [np.float64(0.1), {"lr": np.float32(0.5)}]

        def forward(self, x):
            return x * self.rates[0] + self.rates[1]["lr"]

    torchbolt.reset()
    module = Scale()
    fast = torchbolt.compile(module, fullgraph=True)
    x = torch.randn(3)
    for step in range(8):
        same(fast(x), module.forward(x))
        module.rates[0] *= 0.9
        module.rates[1]["lr"] = np.float32(1 / (step + 1))
    assert torchbolt.stats()["regions"] <= 3
