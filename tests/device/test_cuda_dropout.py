# tests/device/test_cuda_dropout.py
"""Dropout inside of kernels: eager's numbers, no mask in memory, the generator where eager leaves it. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from on_cuda import leaf
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import torchbolt


def run(f, x, seed=3):
    """The result, the gradient, and what the generator gives afterwards."""
    x.grad = None
    torch.manual_seed(seed)
    y = f(x)
    y.float().square().mean().backward()
    return y.detach(), x.grad.clone(), torch.rand(3, device="cuda")


def same(compiled, f, x, exact=True):
    got, want = run(compiled, x), run(f, x)
    assert not exact or torch.equal(got[0] == 0, want[0] == 0), "other elements are dropped"
    assert torch.equal(got[2], want[2]), "the generator is elsewhere afterwards"
    for a, b in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=0 if exact else 2e-2, atol=0 if exact else 8e-3)


SIZES = [(8, 512), (3, 40), (128, 1000), (4096, 768), (64, 512, 768), (7, 13, 11), (5,), (1 << 25,)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_numbers_are_eagers(sizes, dtype):
    def f(x):
        return F.dropout(x, 0.3, training=True)

    x, compiled = leaf(*sizes, dtype=dtype), torchbolt.compile(f)
    for _ in range(3):
        same(compiled, f, x)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9999, 1.0])
def test_probabilities(p):
    def f(x):
        return F.dropout(x.sin(), p, training=True) * 2

    x, compiled = leaf(64, 128), torchbolt.compile(f)
    for _ in range(3):
        same(compiled, f, x, exact=False)


def block(x):
    """Two of them, one in a sum that a norm reads, and random numbers of other operators between."""
    h = F.layer_norm(x + F.dropout(F.gelu(x), 0.1, training=True), x.shape[-1:])
    h = h * (torch.rand_like(h) < 0.9)
    return F.dropout(h, 0.2, training=True) + x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_kernels(dtype):
    x, compiled = leaf(96, 64, 256, dtype=dtype), torchbolt.compile(block)
    for _ in range(3):
        same(compiled, block, x, exact=False)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run(compiled, x)
    names = {event.key for event in seen.key_averages()}
    assert not any("dropout" in name for name in names), sorted(names)


def test_no_mask_is_kept():
    def f(x):
        for _ in range(4):
            x = F.dropout(x.sin(), 0.5, training=True)
        return x

    x, compiled = leaf(1 << 22), torchbolt.compile(f)
    peaks = []
    for call in (f, compiled):
        for _ in range(3):
            run(call, x)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        y = call(x)
        peaks.append(torch.cuda.memory_allocated() - base)
        del y
    assert peaks[1] <= peaks[0] - 4 * x.numel(), peaks


def test_sizes_that_change():
    def f(x):
        return F.dropout(x * 2, 0.4, training=True).sum(-1)

    compiled = torchbolt.compile(f)
    for rows in (16, 24, 40, 8, 1000, 40000):
        same(compiled, f, leaf(rows, 256), exact=False)
    assert torchbolt.stats()["regions"] <= 3


def test_graphs():
    model = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True).cuda()
    compiled = torchbolt.compile(model, mode="reduce-overhead")
    x = leaf(4, 32, 64)
    for _ in range(12):
        same(compiled, model, x, exact=False)
    drawn = [run(compiled, x, seed)[0] for seed in (1, 2, 1)]
    assert torch.equal(drawn[0], drawn[2]) and not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    def f(x):
        return checkpoint(block, checkpoint(block, x, use_reentrant=reentrant), use_reentrant=reentrant)

    x, compiled = leaf(32, 256), torchbolt.compile(f)
    for _ in range(3):
        same(compiled, f, x, exact=False)


def test_whole_steps():
    def make():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 64)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    eager, compiled = make(), torchbolt.compile(make())
    x = torch.randn(32, 64, device="cuda")
    for seed in range(8):
        torch.manual_seed(seed)
        want = eager(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), want, rtol=1e-4, atol=1e-6)


def test_gradients_of_gradients():
    def f(x):
        return F.dropout(x**3, 0.5, training=True)

    def twice(g, x):
        torch.manual_seed(2)
        (first,) = torch.autograd.grad(g(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    x, compiled = leaf(64, 64, dtype=torch.float64), torchbolt.compile(f)
    for _ in range(3):
        torch.testing.assert_close(twice(compiled, x), twice(f, x))


def test_in_a_graph_of_the_users():
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).cuda()
    compiled, x = torchbolt.compile(model), torch.ones(256, 64, device="cuda")
    for _ in range(3):
        compiled(x).sum().backward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(y.detach().clone())
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])
