# tests/device/test_cuda_products.py
"""Products on CUDA that are calls of cuBLASLt itself: how operands lie, types, biases, and what is left to ATen.

Needs a CUDA device. Results are compared with float64, and may be twice as far from that as eager's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import torchbolt
from tests.device.on_cuda import randn

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def check(function, *inputs, calls=3, mode=None):
    """The compiled function, whose results are as near to float64 as eager's."""
    compiled = torchbolt.compile(function, mode=mode)
    with torch.no_grad():
        want = function(*(x.double() for x in inputs))
        allowed = 2 * (function(*inputs).double() - want).abs().max() + 1e-6
        for _ in range(calls):
            got = compiled(*inputs)
            assert got.shape == want.shape
            assert (got.double() - want).abs().max() <= allowed
    return compiled


def products_of_aten(function, *inputs):
    """Names of ATen's operators that a call runs."""
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen:
        function(*inputs)
    names = {event.name for event in seen.events()}
    return names & {"aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::matmul", "aten::_addmm_activation"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [(1,), (7,), (2, 64), (3, 5, 16)])
@pytest.mark.parametrize("biased", [False, True])
def test_layers(dtype, rows, biased):
    w, b = randn(96, 64, dtype=dtype), randn(96, dtype=dtype) if biased else None
    x = randn(*rows, 64, dtype=dtype)
    plain = torchbolt.compile(lambda x: F.linear(x, w, b))
    for _ in range(3):
        with torch.no_grad():
            got = plain(x)
            want = F.linear(x.double(), w.double(), None if b is None else b.double())
            assert (got.double() - want).abs().max() <= 2 * (F.linear(x, w, b).double() - want).abs().max() + 1e-6
    assert not products_of_aten(plain, x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_how_operands_lie(dtype):
    def wide(rows, columns):
        return randn(rows, columns + 24, dtype=dtype)[:, 8 : columns + 8]

    check(lambda a, b: a @ b, randn(48, 64, dtype=dtype), randn(64, 32, dtype=dtype))
    check(lambda a, b: a @ b, randn(64, 48, dtype=dtype).t(), randn(64, 32, dtype=dtype))
    check(lambda a, b: a @ b, randn(48, 64, dtype=dtype), randn(32, 64, dtype=dtype).t())
    check(lambda a, b: a @ b, randn(64, 48, dtype=dtype).t(), randn(32, 64, dtype=dtype).t())
    check(lambda a, b: a @ b, wide(48, 64), wide(64, 32))
    check(lambda a, b: a @ b, randn(48, 65, dtype=dtype)[:, 1:], randn(65, 32, dtype=dtype)[1:])
    check(lambda a, b: a @ b, randn(48, 128, dtype=dtype)[:, ::2], randn(64, 32, dtype=dtype))
    check(lambda a, b: a @ b, randn(1, 64, dtype=dtype).expand(48, 64), randn(64, 32, dtype=dtype))
    check(lambda a, b: a @ b, randn(4, 48, 64, dtype=dtype), randn(4, 64, 32, dtype=dtype))
    check(lambda a, b: a @ b.mT, randn(2, 6, 48, 64, dtype=dtype), randn(2, 6, 32, 64, dtype=dtype))
    check(lambda a, b: a @ b, randn(2, 48, 6, 64, dtype=dtype).transpose(1, 2), randn(2, 6, 64, 32, dtype=dtype))
    check(lambda a, b: a @ b, randn(1, 48, 64, dtype=dtype).expand(4, 48, 64), randn(4, 64, 32, dtype=dtype))
    check(lambda a, b: a @ b, randn(48, 0, dtype=dtype), randn(0, 32, dtype=dtype))
    nothing = torchbolt.compile(lambda a, b: a @ b)
    for _ in range(3):
        assert nothing(randn(0, 64, dtype=dtype), randn(64, 32, dtype=dtype)).shape == (0, 32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_that_is_less_aligned_than_before(dtype):
    w = randn(64, 64, dtype=dtype)
    compiled = torchbolt.compile(lambda x: x @ w, mode="max-autotune-no-cudagraphs")
    room = randn(32 * 64 + 8, dtype=dtype)
    with torch.no_grad():
        for first in (0, 0, 1, 2, 3, 8, 0):
            x = room[first : first + 32 * 64].view(32, 64)
            want = x.double() @ w.double()
            assert (compiled(x).double() - want).abs().max() <= 2 * (x @ w - want).abs().max() + 1e-5


def test_sizes_that_change():
    w, b = randn(96, 64), randn(96)
    compiled = torchbolt.compile(lambda x: F.linear(x, w, b), dynamic=True)
    with torch.no_grad():
        for rows in (4, 9, 2, 33, 4, 1, 128, 9):
            x = randn(rows, 64)
            torch.testing.assert_close(compiled(x), F.linear(x, w, b), rtol=1e-4, atol=1e-4)


def test_float32_may_be_short_where_the_user_says_so():
    w, x = randn(256, 256), randn(64, 256)
    compiled = torchbolt.compile(lambda x: x @ w)
    exact = x.double() @ w.double()
    with torch.no_grad():
        for allowed in (False, True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            try:
                for _ in range(3):
                    error = (compiled(x).double() - exact).abs().max()
                    assert (error > 1e-3) == allowed, error
            finally:
                torch.backends.cuda.matmul.allow_tf32 = False


def test_sums_in_one_order_are_atens():
    w, x = randn(256, 256), randn(64, 256)
    compiled = torchbolt.compile(lambda x: x @ w)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        assert not products_of_aten(compiled, x)
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            assert products_of_aten(compiled, x)
        finally:
            torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_streams_and_threads(mode):
    """Several threads, each on a stream of its own, with results that others do not write over."""
    w, b = randn(256, 256, dtype=torch.bfloat16), randn(256, dtype=torch.bfloat16)
    compiled = torchbolt.compile(lambda x: F.linear(F.linear(x, w, b), w, b), mode=mode)
    with torch.no_grad():
        inputs = [randn(32, 256, dtype=torch.bfloat16) for _ in range(4)]
        wanted = [F.linear(F.linear(x, w, b), w, b) for x in inputs]
        for _ in range(3):
            compiled(inputs[0])
    torch.cuda.synchronize()

    def work(i):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                got = compiled(inputs[i])
                assert (got - wanted[i]).abs().max() <= 0.02 * wanted[i].abs().max()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


def test_gradients():
    """Products of a backward pass lie in every way."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 32)).cuda()
    compiled, x = torchbolt.compile(model), randn(5, 7, 64)
    model(x).square().sum().backward()
    want = [p.grad.clone() for p in model.parameters()]
    for _ in range(3):
        model.zero_grad()
        compiled(x).square().sum().backward()
        for p, w in zip(model.parameters(), want, strict=True):
            torch.testing.assert_close(p.grad, w, rtol=1e-3, atol=1e-3)


def test_ways_are_measured_where_they_are_asked_for():
    w = randn(2048, 8192, dtype=torch.bfloat16) / 90
    check(lambda x: F.linear(x, w.to(x.dtype)), randn(128, 8192, dtype=torch.bfloat16), mode="max-autotune")
    compiled = torchbolt.compile(lambda x: F.linear(x, w), mode="max-autotune")
    x = randn(128, 8192, dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
    (region,) = torchbolt.api.compiled_of(compiled)._regions()
    assert any("a product of" in line for line in region["choices"]), region["choices"]
