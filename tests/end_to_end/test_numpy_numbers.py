# tests/end_to_end/test_numpy_numbers.py
"""numpy's numbers that differ between calls (a learning rate, a size): one program for all of them, as for Python's.

Their arithmetic and their types are numpy's own; operators take the numbers of Python's that they stand for. What numpy's
functions make of numbers alone is such a number, too.
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


def functions(x, a):
    scaled = x * np.sqrt(a * a + 1) - np.exp(-a) * x, x.masked_fill(x > 0, np.float32(a)), np.tanh(a) / (x + 9)
    several = np.maximum(a, 3), np.power(10000, a / 8), np.clip(a, -9, 9), np.round(a, 1), np.mean([a, 1.0, 2.0])
    return scaled, several, np.prod((a, 2.0)), np.prod([2, 3], dtype=np.float32), np.isnan(a), np.float64(a) + 1


def constants(x, a):
    return x * np.sqrt(2.0 / np.pi) + np.log2(8), x / np.float32(3.5), np.prod([2, 3]), np.max((1, 2)), np.isfinite(1.0)


def sizes(x):
    flat = x.reshape(x.shape[0], np.prod(x.shape[1:])) / np.sqrt(x.shape[-1])
    return flat, x.view(int(np.prod(x.shape))) * np.log(x.size(0)), x.new_zeros(np.sum([x.size(0), 2]))


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


@pytest.mark.parametrize("kind", [float, np.float64, np.float32], ids=lambda kind: kind.__name__)
def test_functions_of_numbers(kind):
    run(functions, [kind(a) for a in FLOATS], 2)
    run(constants, [kind(a) for a in FLOATS], 2)
    assert torchbolt.stats()["graph_breaks"] == 0


def test_functions_of_sizes():
    fast = torchbolt.compile(sizes, fullgraph=True)
    torchbolt.reset()
    for size in [(2, 3, 4), (5, 3, 4), (5, 7, 2), (6, 2, 3), (3, 2, 2)]:
        same(fast(x := torch.randn(size)), sizes(x))
    assert torchbolt.stats()["regions"] <= 3


def test_functions_made_with_numpy_run_the_users_code():
    calls = []

    def noted(a):
        calls.append(a)
        return a + 1

    for made in (np.frompyfunc(noted, 1, 1), np.vectorize(noted)):
        fast = torchbolt.compile(lambda x, made=made: x * float(made(2.0)))
        for _ in range(3):
            calls.clear()
            same(fast(torch.ones(2)), torch.full((2,), 3.0))
            assert calls == [2.0] * (2 if isinstance(made, np.vectorize) else 1)


def test_which_function_it_is():
    fast = torchbolt.compile(lambda x, of: x * of(4.0), fullgraph=True)
    torchbolt.reset()
    for of in (np.sqrt, np.exp, np.sqrt, np.float32, np.prod):
        same(fast(x := torch.ones(2), of), x * of(4.0))


def test_what_numpy_is_asked_is_eagers_where_it_is_no_number():
    def fn(x):
        return x + float(np.linspace(0.0, 1.0, 5)[1]), np.arange(3).tolist(), x * np.array([1.0, 2.0]).sum()

    fast = torchbolt.compile(fn)
    torchbolt.reset()
    for _ in range(3):
        same(fast(x := torch.ones(2)), fn(x))


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


def test_a_list_of_any_length():
    """What a loop reports of its history, which is longer in each call."""
    history = []

    def fn(x):
        history.append(float(len(history)) / 3)
        return x.sin() * np.mean(history), np.max(history), np.std(history) + 1

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(12):
        x = torch.randn(4)
        kept = list(history)
        got, seen = compiled(x), list(history)
        history[:] = kept
        torch.testing.assert_close(got, fn(x))
        assert seen == history and type(got[1]) is np.float64
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0 and stats["recordings"] <= 4, stats


def test_a_number_out_of_an_arrays_tensor():
    """It is the number of each call: the tensor of an array is no constant, though torch lifts it as one."""

    def fn(array):
        return torch.from_numpy(array)[0].item() + 1

    compiled = torchbolt.compile(fn)
    for i in range(5):
        assert compiled(np.full(3, float(i))) == i + 1
