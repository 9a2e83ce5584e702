# tests/observe/test_arrays.py
"""numpy between tensors: one region, with what numpy gives: values, dtypes, classes and who shares whose memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import torchbolt


def _copied(value):
    return value.clone() if isinstance(value, torch.Tensor) else value.copy()


def _same(mine, theirs):
    assert type(mine) is type(theirs)
    if isinstance(mine, (tuple, list)):
        assert len(mine) == len(theirs)
        for pair in zip(mine, theirs):
            _same(*pair)
    elif isinstance(mine, float):
        assert mine == pytest.approx(theirs, rel=1e-5)
    elif isinstance(mine, (np.ndarray, np.generic, torch.Tensor)):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        loose = "32" in str(mine.dtype)
        np.testing.assert_allclose(
            np.asarray(mine), np.asarray(theirs), rtol=1e-4 if loose else 1e-12, atol=1e-5 * loose
        )
    else:
        assert mine == theirs


def _agrees(function, *makers, breaks=0):
    """With sizes that change, and what is written to the arguments; the given number of ends."""
    compiled = torchbolt.compile(function)
    for n in (4, 4, 4, 6, 6, 8):
        inputs = [make(n) for make in makers]
        others = [_copied(each) for each in inputs]
        _same(compiled(*others), function(*inputs))
        _same(others, inputs)
    found = torchbolt.explain(function)(*others)
    assert found.graph_break_count == breaks, [str(each.reason) for each in found.break_reasons]
    if not breaks:
        assert found.graph_count == 1


def tensor(n):
    return torch.rand(n, n)


def array(n):
    return np.random.default_rng(n).random((n, n))


def single(n):
    return array(n).astype(np.float32)


def ints(n):
    return np.arange(n * n).reshape(n, n)


def there_and_back(t):
    return torch.from_numpy(np.exp(t.numpy()) * 2).relu() + torch.tensor(t.numpy()[0])


def products(a):
    return a * 2 + np.sqrt(a) @ a - a / 3, np.einsum("ij,jk->ik", a, a), np.linalg.norm(a, axis=1), -a


def numbers(a):
    largest = a.max()
    return a / largest, a.mean(), np.sqrt(np.mean(a**2)), a[0, 1], -largest, [largest, a.std()]


def softmax(a):
    e = np.exp(a - np.max(a, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def of_ints(a):
    return a.sum(), a * 1.5, a + 2, a.astype(np.float32), a > 3


def of_sizes(t):
    a = t.numpy()
    n = a.shape[0]
    return a + np.arange(n), a.reshape(-1), np.zeros((n, 2)), np.ones(n, dtype=np.float32), a.shape, a.size, a.ndim


def pieces(a):
    return a[1:, 0], a[::2], a[..., None], np.concatenate([a, a]), np.stack([a, a * 2]), np.where(a > 0.5, a, 0.0)


def written(t):
    a = t.numpy()
    a += 1
    a[0] = 5
    rows = a[1:].T
    rows *= 2
    return t * 2, a, rows.reshape(-1)


def overlapping(a):
    b = a[1:]
    b += a[:-1]
    a[0], a[1] = a[1].copy(), a[0].copy()
    return a, b


def before_a_write(a):
    corner = a[0, 0]
    a[0, 0] = 100
    return corner, a


def taken_out(a):
    return a.sum().item() + 1, float(a.max()) * 2, int(a.max() * 10), a[0, 0].item()


def of_both(a, t):
    y = torch.relu(t).numpy() + a
    return y.dtype == np.float64, torch.as_tensor(y, dtype=torch.float32).sum()


@pytest.mark.parametrize("function", [there_and_back, of_sizes, written])
def test_of_tensors(function):
    _agrees(function, tensor)


@pytest.mark.parametrize("make", [array, single])
@pytest.mark.parametrize("function", [products, numbers, softmax, pieces, overlapping, before_a_write, taken_out])
def test_of_arrays(function, make):
    _agrees(function, make)


def test_of_ints():
    _agrees(of_ints, ints)


def test_result_shares_the_tensors_memory():
    def function(t):
        a = t.numpy()
        return a, a[1:], a + 1

    compiled = torchbolt.compile(function)
    for _ in range(4):
        t = tensor(4)
        a, part, other = compiled(t)
        t.zero_()
        assert not a.any() and not part.any() and other.all()


def shown_before_a_write(a):
    b = a + 1
    text = f"{b}"
    b += 1
    return text, b


def decides(a):
    b = a * 2
    return b + 1 if b.sum() > 3 else b


@pytest.mark.parametrize("function", [shown_before_a_write, decides])
def test_what_is_read_ends_the_region(function):
    _agrees(function, array, breaks=1)


def backwards(a):
    return a[::-1]


def halved(a):
    return a / 2


def divided(a):
    return (a + 5) // (a + 1)


@pytest.mark.parametrize(("function", "make"), [(backwards, array), (halved, ints), (divided, ints)])
def test_what_torch_does_otherwise_is_numpys(function, make):
    """A view where torch makes a copy; float64 where it makes float32; a division by zero, which torch raises for and numpy does not."""
    _agrees(function, make, breaks=1)
    divisors = np.zeros((4, 4), dtype=np.int64) - 1
    with np.errstate(divide="ignore"):
        _same(torchbolt.compile(divided)(divisors), divided(divisors))


def test_numpys_errors_are_numpys():
    def function(a):
        return a.reshape(3, 5) + 1

    compiled = torchbolt.compile(function)
    for _ in range(3):
        with pytest.raises(ValueError, match="cannot reshape"):
            compiled(array(4))


def test_arguments_that_share_memory():
    def function(t, a):
        a += 1
        return t * 2

    compiled = torchbolt.compile(function)
    for shares in (False, True, True, False, True):
        t = torch.ones(3)
        a = t.numpy() if shares else np.ones(3, dtype=np.float32)
        assert compiled(t, a).tolist() == ([4, 4, 4] if shares else [2, 2, 2])
        base = np.arange(10.0)
        whole = compiled(torch.from_numpy(base[:8]), base[1:9] if shares else a)
        assert whole[1] == (4 if shares else 2)


@pytest.mark.parametrize("dtype", [">f8", object, np.complex64, np.uint16, bool])
def test_dtypes_that_torch_may_not_have(dtype):
    def function(a):
        return a + a

    compiled = torchbolt.compile(function)
    for _ in range(3):
        a = np.ones(3, dtype=dtype)
        made = compiled(a)
        assert made.dtype == (a + a).dtype and (made == a + a).all()


def test_arrays_that_are_not_written_or_are_the_users():
    class Own(np.ndarray):
        def __add__(self, other):
            return "own"

    def function(a):
        b = a + 1
        a *= 2
        return b

    compiled = torchbolt.compile(function)
    fixed = np.ones(3)
    fixed.flags.writeable = False
    for _ in range(3):
        assert compiled(np.ones(3)).tolist() == [2, 2, 2]
        with pytest.raises(ValueError, match="read-only"):
            compiled(fixed)
        assert compiled(np.ones(3).view(Own)) == "own"
    assert fixed.tolist() == [1, 1, 1]


WITHOUT_THE_PEER = """
import sys
import numpy as np
import torch
import torchbolt

def made(x):
    return torch.from_numpy(np.sin(x.numpy()) * np.linspace(0, 1, 4) + np.zeros(4) + np.arange(4).mean())

def summed(x):
    return torch.from_numpy(np.cumsum(x.numpy()) / np.mean(x.numpy()) + np.full(4, 2))

def divided(x):
    return torch.from_numpy(np.arange(1, 5) / np.arange(2, 6) + x.numpy())

for function in (made, summed, divided):
    compiled = torchbolt.compile(function)
    for _ in range(3):
        compiled(torch.ones(4))
assert "torch._numpy" in sys.modules
print([name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))])
"""


def test_nothing_of_torchs_compiler_is_imported():
    shown = subprocess.run([sys.executable, "-c", WITHOUT_THE_PEER], capture_output=True, text=True, check=False)
    assert shown.returncode == 0 and shown.stdout.strip() == "[]", shown.stdout + shown.stderr
