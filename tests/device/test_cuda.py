# tests/device/test_cuda.py
"""Regions with CUDA tensors: compiled, equal to eager, on the caller's stream and device. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch
from on_cuda import convolutional, randn

import torchbolt

F = torch.nn.functional


FUNCTIONS = {
    "pointwise": (lambda a, b: torch.relu(a * b + 1).sigmoid() * 3, lambda: (randn(128, 256), randn(256))),
    "number_on_the_processor": (lambda a, s: a * s + 2, lambda: (randn(128, 256), torch.tensor(3.0))),
    "softmax": (lambda a: torch.softmax(a, -1), lambda: (randn(128, 256),)),
    "layer_norm": (lambda a: F.layer_norm(a, (256,)), lambda: (randn(128, 256),)),
    "sum": (lambda a: (a * a).sum(), lambda: (randn(128, 256),)),
    "column_sum": (lambda a: a.sum(0), lambda: (randn(1000, 256),)),
    "bfloat16": (lambda a: F.gelu(a) * a.tanh(), lambda: (randn(128, 256, dtype=torch.bfloat16),)),
    "positions": (lambda a: a + torch.arange(256, device="cuda"), lambda: (randn(128, 256),)),
    "to_the_processor": (lambda a: (a * 2).cpu() + 1, lambda: (randn(128, 256),)),
    "in_place": (lambda a: a.clone().add_(1).mul_(2)[1:, ::2], lambda: (randn(128, 256),)),
    "indices": (lambda a, i: a[i] * 2, lambda: (randn(128, 256), torch.tensor([3, 5, 1], device="cuda"))),
    "indices_on_the_processor": (lambda a, i: a[i] * 2, lambda: (randn(128, 256), torch.tensor([3, 5, 1]))),
    "indices_made_on_the_processor": (
        lambda a: a[torch.arange(8)[:, None] - torch.arange(8) + 7] * 2,
        lambda: (randn(15, 256),),
    ),
    "transposed": (lambda a: torch.cat([a, a * 2], 1).transpose(0, 1) + 1, lambda: (randn(128, 256),)),
    "off_alignment": (lambda a: a[:, 1:] * 2 + a[:, :-1], lambda: (randn(128, 257),)),
    "product": (lambda a, w: F.linear(a, w).relu() + 1, lambda: (randn(128, 256), randn(64, 256))),
    "argmax": (lambda a: a.argmax(-1), lambda: (randn(128, 256),)),
    "cumulative": (lambda a: a.cumsum(-1) * 2, lambda: (randn(128, 256),)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v) + 1,
        lambda: tuple(randn(2, 4, 32, 16) for _ in range(3)),
    ),
}


def check(got, want, exact):
    """As near to what doubles give as twice eager's distance, and a rounding."""
    assert got.device == want.device and got.stride() == want.stride() and got.dtype == want.dtype
    if not got.is_floating_point():
        return torch.testing.assert_close(got, want)
    scale = exact.abs().max() * torch.finfo(want.dtype).eps
    assert (got.double() - exact).abs().max() <= 2 * (want.double() - exact).abs().max() + scale


def doubled(tensors):
    return [t.double() if t.is_floating_point() else t for t in tensors]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    torch.manual_seed(0)
    torchbolt.reset()
    function, arguments = FUNCTIONS[name]
    compiled = torchbolt.compile(function, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            given = arguments()
            want, exact = function(*(a.clone() for a in given)), function(*doubled(given))
            check(compiled(*given), want, exact)
    stats = torchbolt.stats()
    assert stats["regions"] == 1 and stats["eager_fallbacks"] == 0


ROWS = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("given", ROWS)
@pytest.mark.parametrize("sizes", [(999, 33), (7,), (1, 1), (513, 511)])
def test_rows_that_begin_between_accesses(sizes, given):
    """Every type beside every other, large and small ones."""

    def function(a, *others):
        return tuple((a + b.to(a.dtype)).to(b.dtype) for b in others) + (a > 1, others[0] != a.to(others[0].dtype))

    def drawn(dtype):
        return (
            (torch.arange(torch.Size(sizes).numel(), device="cuda") % 5 - (dtype.is_signed * 2)).to(dtype).view(sizes)
        )

    a, others = drawn(given), [drawn(dtype) for dtype in ROWS]
    compiled = torchbolt.compile(function, fullgraph=True)
    for _ in range(2):
        for got, want in zip(compiled(a, *others), function(a, *others), strict=True):
            assert got.dtype == want.dtype and got.equal(want)


def models():
    yield "mlp", torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)), (8, 256)
    yield "cnn", convolutional(), (4, 3, 32, 32)
    yield (
        "encoder",
        torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
        (2, 16, 64),
    )


@pytest.mark.parametrize("name, model, sizes", list(models()), ids=lambda x: x if isinstance(x, str) else "")
def test_models(name, model, sizes):
    torch.manual_seed(0)
    torchbolt.reset()
    model = model.cuda().eval()
    compiled = torchbolt.compile(model)
    with torch.no_grad():
        for _ in range(3):
            x = randn(*sizes)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        for parameter in model.parameters():
            parameter.mul_(1.1)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_sizes_that_differ():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda a: torch.softmax(a * 2, -1).sum(0))
    with torch.no_grad():
        for rows in (3, 5, 64, 1000, 7):
            for columns in (16, 33, 700):
                x = randn(rows, columns)
                torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1).sum(0))
    assert torchbolt.stats()["regions"] <= 2


def test_other_streams():
    """Work goes to the stream that is current at the call, and memory is not used before it is free there."""
    torchbolt.reset()

    def function(a):
        for _ in range(4):
            a = torch.softmax(a, -1) @ a.transpose(0, 1)
        return a + 1

    compiled = torchbolt.compile(function)
    streams = [torch.cuda.Stream() for _ in range(3)]
    with torch.no_grad():
        inputs = [randn(512, 512) for _ in range(12)]
        want = [function(x) for x in inputs]
        torch.cuda.synchronize()
        got = []
        for i, x in enumerate(inputs):
            with torch.cuda.stream(streams[i % 3]):
                got.append(compiled(x))
        torch.cuda.synchronize()
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_an_index_out_of_range_is_told_later():
    torchbolt.reset()
    table = randn(10, 4)
    compiled = torchbolt.compile(lambda i: table[i] * 2)
    with torch.no_grad():
        compiled(torch.tensor([1, 2], device="cuda"))
        compiled(torch.tensor([1, 99], device="cuda"))
        torch.cuda.synchronize()
        with pytest.raises(IndexError, match="out of range"):
            compiled(torch.tensor([1, 2], device="cuda"))
        good = compiled(torch.tensor([1, 2], device="cuda"))
    torch.testing.assert_close(good, table[[1, 2]] * 2)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_devices():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda a: (a * 2).to("cuda:1").softmax(-1) + 1)
    with torch.no_grad():
        for _ in range(3):
            x = randn(8, 64)
            torch.testing.assert_close(compiled(x), (x * 2).to("cuda:1").softmax(-1) + 1)
