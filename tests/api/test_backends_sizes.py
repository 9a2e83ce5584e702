# tests/api/test_backends_sizes.py
"""Sizes and numbers that differ between calls, with each backend: one graph for all of them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from counting import Counting
from torch import nn

import torchbolt


def interpreted(gm, example_inputs):
    return lambda *args: torch.fx.Interpreter(gm).run(*args)


BACKENDS = ["eager", "aot_eager", Counting(), interpreted, "torchbolt"]


def name_of(backend):
    return backend if isinstance(backend, str) else getattr(backend, "__name__", "function")


def reshaped(x, scale):
    y = x.reshape(x.shape[0] * 2, -1) * scale
    return y.view(-1), y.sum(0, keepdim=True).expand(x.shape[0], -1), x.new_zeros(x.shape[0] + 3, min(x.shape[0], 5))


def attended(x, scale):
    n = x.shape[0]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    scores = (x @ x.t() * scale).masked_fill(~mask, -1e9)
    return F.softmax(scores, -1) @ x, torch.arange(n) * scale, F.pad(x, (0, 0, 1, n // 2))


def sliced(x, scale):
    n = x.shape[0]
    first, second = x.split([n // 2, n - n // 2])
    return torch.cat([second * scale, first]), x[: n - 1] + x[1:], x[-2:].mean(), n % 3


def written(x, scale):
    y = x.clone()
    y[1:].mul_(scale)
    y.t()[0] += x.shape[0]
    x.add_(scale)
    return y


def layers(x, scale):
    torch.manual_seed(0)
    return F.layer_norm(x, (4,)).flatten() * scale, F.linear(x, x), F.conv1d(x.t()[None], torch.ones(2, 4, 2))


FUNCTIONS = [reshaped, attended, sliced, written, layers]


@pytest.mark.parametrize("backend", BACKENDS, ids=name_of)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_sizes_and_numbers(fn, backend):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, backend=backend)
    for n, scale in [(6, 0.5), (6, 0.25), (8, 0.25), (5, 2.0), (11, -1.5), (6, 0.5)]:
        x = torch.randn(n, 4)
        y = x.clone()
        torch.testing.assert_close(compiled(x, scale), fn(y, scale))
        torch.testing.assert_close(x, y)
    # For what came first, for any number, and for any size.
    assert torchbolt.stats()["regions"] == 3
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("backend", BACKENDS, ids=name_of)
def test_gradients(backend):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def fn(x):
        return net(x).sum() / x.shape[0]

    torchbolt.reset()
    compiled = torchbolt.compile(fn, backend=backend)
    for n in (3, 5, 8, 3):
        x = torch.randn(n, 4)
        grads = []
        for run in (compiled, fn):
            net.zero_grad()
            run(x).backward()
            grads.append([p.grad.clone() for p in net.parameters()])
        torch.testing.assert_close(grads[0], grads[1])
    assert torchbolt.stats()["regions"] == 2


def test_the_graph():
    def fn(x, y, scale):
        return x.repeat(2, 1).view(x.shape[0], -1) * scale, y[: x.shape[0] // 2]

    torchbolt.reset()
    backend = Counting()
    compiled = torchbolt.compile(fn, backend=backend, dynamic=True)
    for n, scale in [(6, 0.5), (9, 0.25), (4, 3.0)]:
        x, y = torch.randn(n, 4), torch.randn(12)
        torch.testing.assert_close(compiled(x, y, scale), fn(x, y, scale))
    (graph,) = backend.graphs
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    assert [node.name for node in placeholders][:2] == ["x", "y"]
    tensors, (number,) = backend.inputs[0][:2], backend.inputs[0][2:]
    assert [tuple(t.shape) for t in tensors] == [(6, 4), (12,)] and number == 0.5
    sizes = [node for node in graph.graph.nodes if node.target is torch.ops.aten.sym_size.int]
    assert [(node.args[0].name, node.args[1], node.meta["val"]) for node in sizes] == [("x", 0, 6)]
    graph.graph.lint()


@pytest.mark.parametrize("backend", BACKENDS, ids=name_of)
def test_only_the_size_is_used(backend):
    def fn(x, y, z):
        equal = x.shape[0] == z.shape[0]
        return torch.zeros(x.shape[0]) + y.sum(), torch.arange(z.shape[0] + equal), y * 2

    torchbolt.reset()
    compiled = torchbolt.compile(fn, backend=backend)
    for n in (3, 5, 6, 3, 7):
        args = torch.ones(n), torch.ones(4), torch.ones(n, 2)
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert torchbolt.stats()["regions"] == 2


@pytest.mark.parametrize("backend", BACKENDS, ids=name_of)
def test_dynamic_false(backend):
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: x * x.shape[0], backend=backend, dynamic=False)
    for n in (3, 5, 8):
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), float(n)))
    assert torchbolt.stats()["regions"] == 3


@pytest.mark.parametrize("backend", BACKENDS, ids=name_of)
def test_an_operator_that_must_know_the_size(backend):
    def fn(x):
        return torch.linspace(0, 1, x.shape[0]) * x.sum(), x.unbind(0)[0]

    torchbolt.reset()
    compiled = torchbolt.compile(fn, backend=backend)
    for n in (3, 5, 8, 5, 3):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))
