# tests/device/test_cuda_rows.py
"""Running results and writes at computed places on CUDA, as near to float64's as eager's. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch
from on_cuda import randn

import torchbolt


def below(n, *sizes):
    return torch.randint(0, n, sizes, device="cuda")


SCANS = {
    "thread": (5000, 7, 1), "warp": (300, 100, 1), "block": (20, 1000, 1), "long rows": (4, 100_000, 1),
    "columns": (700, 300, 0), "one row": (1, 3000, 1), "one long row": (1, 1_000_000, 1),
}  # fmt: skip


def agree(fn, *args, floor=1e-6, extern=0):
    def wide(a):
        return a.double() if a.is_floating_point() else a

    compiled = torchbolt.compile(fn, fullgraph=True)
    exact, eager = fn(*map(wide, args)), fn(*args)
    for _ in range(3):
        mine = compiled(*args)
        for a, b, e in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (mine, eager, exact)), strict=True):
            assert a.dtype == b.dtype and a.stride() == b.stride()
            if not b.is_floating_point():
                assert a.equal(b)
                continue
            scale = e[e.isfinite()].abs().max().item() if e.isfinite().any() else 1
            ours, theirs = ((r.double() - e).nan_to_num().abs().max().item() / max(scale, 1) for r in (a, b))
            assert ours <= 2 * theirs + floor and a.isnan().equal(b.isnan())
    regions = torchbolt.api.compiled_of(compiled)._regions()
    assert [r["extern_calls"] for r in regions] == [extern]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", SCANS)
def test_running_results(name, dtype):
    rows, length, dim = SCANS[name]
    x = below(9, rows, length) - 4 if dtype == torch.int64 else randn(rows, length, dtype=dtype)
    floor = 2e-2 if dtype == torch.bfloat16 else 1e-5
    call = int(name == "one long row")
    agree(lambda x: x.cumsum(dim), x, floor=floor, extern=call)
    if not call:
        agree(lambda x: x.cummax(dim), x)
        agree(lambda x: x.cummin(dim), x)
        agree(lambda x: (x * 2).cumsum(dim).flip(dim).cumsum(dim), x, floor=floor)
    if dtype != torch.int64 and not call:
        agree(lambda x: x.logcumsumexp(dim), x, floor=floor, extern=1)
        agree(lambda x: (x * 0.1 + 1).cumprod(dim), x, floor=floor)


def test_places_among_sorted_numbers():
    agree(
        lambda x, s: (torch.bucketize(x, s), torch.bucketize(x, s, right=True)), randn(999, 33), randn(1000).sort()[0]
    )


SCATTERS = {
    "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None].expand_as(s), s),
    "scatter_add of each": lambda x, i, s: x.scatter_add(1, (i[:, None] + torch.arange(64, device="cuda")) % 64, s),
    "amax": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "amax"),
    "amin without": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "amin", include_self=False),
    "mean": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "mean"),
    "index_add": lambda x, i, s: x.index_add(0, i, s.tanh()) * 2,
    "index_copy": lambda x, i, s: x.index_copy(0, i.unique()[:5], s[:5]),
    "in place": lambda x, i, s: x.clone().index_add_(0, i, s),
    "gathered": lambda x, i, s: x.gather(0, i[:, None].expand_as(s)) + s,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [n for n in SCATTERS if n != "index_copy"])
def test_scatters(name, dtype):
    n = 2000 if "each" in name else 5000
    x, i, s = randn(2000, 64, dtype=dtype), below(2000, n), randn(n, 64, dtype=dtype)
    agree(SCATTERS[name], x, i, s, floor=1e-6 if dtype.itemsize >= 4 else 1e-2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_whole_numbers(dtype):
    x, i, s = below(9, 50, 30).to(dtype), below(50, 4000), below(9, 4000, 30).to(dtype)
    agree(lambda x, i, s: x.index_add(0, i, s), x, i, s)
    agree(lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "amax"), x, i, s)
    agree(lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "prod"), x, i, s)


def test_what_eager_adds_in_one_order_stays_its_own():
    x, i, s = randn(50, 8), below(50, 300), randn(300, 8)
    agree(lambda x, i, s: x.index_put((i,), s, accumulate=True), x, i, s, extern=1)
    torch.use_deterministic_algorithms(True)
    try:
        agree(lambda x, i, s: x.index_add(0, i, s), x, i, s, extern=1)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_cache_is_written_in_place():
    cache, i, k = randn(2, 8, 128, 64), torch.tensor([5], device="cuda"), randn(2, 8, 1, 64)
    expected = cache.clone().index_copy_(2, i, k)
    compiled = torchbolt.compile(lambda c, i, k: c.index_copy_(2, i, k).sum(-1))
    for _ in range(4):
        torch.testing.assert_close(compiled(cache, i, k), expected.sum(-1))
        assert cache.equal(expected)


@pytest.mark.parametrize("name", ["index_add", "gathered", "amax"])
def test_gradients(name):
    fn, i = SCATTERS[name], torch.randperm(2000, device="cuda")[:500]
    x, s = randn(2000, 64), randn(500, 64)

    def gradients(f, dtype):
        a, b = x.to(dtype, copy=True).requires_grad_(), s.to(dtype, copy=True).requires_grad_()
        f(a, i, b).sin().sum().backward()
        return a.grad, b.grad

    for mine, exact in zip(gradients(torchbolt.compile(fn), torch.float32), gradients(fn, torch.float64), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-4, atol=1e-4)
