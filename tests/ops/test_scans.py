# tests/ops/test_scans.py
"""Running sums and products, running extremes with their places, and places in what is sorted."""

import pytest
import torch
from agree import FLOATS, as_exact, check, lain_otherwise

import torchbolt

INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
SHAPES = {"rows": ((5, 37), 1), "columns": ((37, 5), 0), "middle": ((3, 17, 4), 1), "last of three": ((2, 3, 40), -1),
          "one row": ((70,), 0), "one element": ((4, 1), 1), "nothing": ((4, 0), 1), "no rows": ((0, 4), 1),
          "number": ((), 0), "long": ((2, 5000), 1), "many columns": ((9, 300), 0)}  # fmt: skip


def values(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2, shape).to(dtype) if dtype == torch.bool else torch.randint(-4, 5, shape).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("name", SHAPES)
def test_running_sums(name, dtype):
    shape, dim = SHAPES[name]
    check(lambda x: x.cumsum(dim), values(shape, dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("name", [n for n in SHAPES if n != "long"])
def test_running_products(name, dtype):
    shape, dim = SHAPES[name]
    check(lambda x: x.cumprod(dim), values(shape, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SHAPES)
def test_running_log_of_sums(name, dtype):
    shape, dim = SHAPES[name]
    check(lambda x: x.logcumsumexp(dim), values(shape, dtype) * 4)


def test_running_log_of_sums_of_infinities():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[-inf, -inf, 1, inf, inf, 2], [-inf, 0, nan, 1, 2, 3], [inf, inf, -inf, 0, 0, 0]])
    check(lambda x: x.logcumsumexp(1), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_running_log_of_sums_of_numbers_far_apart(dtype):
    # One exponential for all would lose what comes before something far above it.
    x = torch.randn(4, 67, dtype=dtype)
    x[0] += torch.arange(67) * 40
    x[1, 30:] += 1000
    x[2, ::3] -= 500
    x[3] -= torch.arange(67) * 40
    check(lambda x: x.logcumsumexp(1), x)


def test_running_products_of_doubles_stay_in_range():
    x = torch.tensor([[1e-300, *[1e100, 1e100, 1e100, 1e-100, 1e-100] * 4]], dtype=torch.float64)
    check(lambda x: x.cumprod(1), x)
    assert x.cumprod(1).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32])
@pytest.mark.parametrize("name", SHAPES)
def test_running_extremes(name, dtype):
    shape, dim = SHAPES[name]
    if name in ("nothing", "number"):
        return
    x = values(shape, dtype)
    check(lambda x: (*x.cummax(dim), *x.cummin(dim)), x)


def test_running_extremes_of_nan():
    nan = torch.nan
    x = torch.tensor([[1, 1, nan, 3, nan, 0], [nan, 1, 2, 3, 4, 5], [3, 2, 3, 1, 3, 3]])
    check(lambda x: (*x.cummax(1), *x.cummin(1)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_layouts(dtype):
    for _, x in lain_otherwise(values((6, 5, 7), dtype)):
        for dim in range(3):
            check(lambda x, d=dim: x.cumsum(d), x)


def test_a_scan_takes_in_what_is_around_it():
    x, y = torch.randn(2, 8, 33)
    region = check(lambda x, y: ((x * y).exp().cumsum(-1) + 1).relu() * y, x, y)
    assert region["kernels"] == 1
    region = check(lambda x: x.flip(1).cumsum(1).flip(1) * 2, x)
    assert region["kernels"] == 1


def test_types_that_are_asked_for():
    x = torch.randn(4, 9)
    check(lambda x: (x.cumsum(1, dtype=torch.float64), x.cumprod(0, dtype=torch.float64)), x)
    check(lambda x: x.cumsum(1, dtype=torch.int32), torch.randint(0, 9, (4, 9)))
    check(lambda x: x.cumsum(0), torch.ones(100, dtype=torch.bool))


def test_in_place():
    check(lambda x: x.cumsum_(1), torch.randn(4, 9), written=(0,))
    check(lambda x: x[:, 2:7].cumprod_(1), torch.randn(4, 9), written=(0,))


def test_of_numbers_that_do_not_vary():
    check(lambda x: torch.ones(3, 8).cumsum(1) * x, torch.randn(3, 8))
    check(lambda x: x[:, :1].expand(3, 8).cumsum(1), torch.randn(3, 8))


GRADIENTS = {
    "sum": lambda x: x.exp().cumsum(1),
    "product": lambda x: x.cumprod(1),
    "log of sums": lambda x: x.logcumsumexp(1),
    "maximum": lambda x: x.cummax(1)[0],
    "minimum": lambda x: x.cummin(0)[0],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    torchbolt.reset()
    fn = GRADIENTS[name]
    x = torch.randn(5, 23)
    weights = torch.randn(5, 23)

    def gradient(f, dtype):
        leaf = x.to(dtype, copy=True).requires_grad_()
        (f(leaf) * weights.to(dtype)).sum().backward()
        return leaf.grad

    as_exact([gradient(torchbolt.compile(fn), torch.float32)], [gradient(fn, torch.float32)],
             [gradient(fn, torch.float64)])  # fmt: skip


def test_sizes_that_differ_between_calls():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: x.cumsum(1) + 1, dynamic=True)
    for shape in [(3, 5), (4, 7), (2, 40), (1, 1), (6, 300)]:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), x.cumsum(1) + 1)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 100])
def test_places_among_sorted_numbers(count, dtype, right):
    sorted_ = torch.randint(-20, 20, (count,)).to(dtype).sort()[0]
    x = torch.randint(-25, 25, (13, 9)).to(dtype)
    x[0, :3] = sorted_[0]
    check(lambda x, s: torch.bucketize(x, s, right=right), x, sorted_)
    check(lambda x, s: torch.bucketize(x, s, right=right, out_int32=True), x, sorted_)
    check(lambda x, s: torch.searchsorted(s, x, side="right" if right else "left"), x, sorted_)
    check(lambda x, s: torch.searchsorted(s, x, right=right), x, sorted_)


def test_rows_of_sorted_numbers():
    sorted_, x = torch.randn(4, 3, 11).sort(-1)[0], torch.randn(4, 3, 6)
    check(lambda x, s: torch.searchsorted(s, x), x, sorted_)


def test_nan_among_sorted_numbers():
    x = torch.tensor([torch.nan, -torch.inf, torch.inf, 0.0])
    check(lambda x, s: (torch.bucketize(x, s), torch.bucketize(x, s, right=True)), x, torch.tensor([-1.0, 0, 0, 3]))
