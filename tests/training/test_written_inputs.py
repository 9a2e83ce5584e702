# tests/training/test_written_inputs.py
"""Regions that give an input another history by writing to it: compiled, and to autograd as eager's writes are."""

import pytest
import torch
from torch import nn

import torchbolt


@pytest.fixture(autouse=True)
def start():
    torch.manual_seed(0)
    torchbolt.reset()


def compiled(fn):
    return torchbolt.compile(lambda *args: fn(*args))


def check_compiled(fast, regions=1):
    assert [r["why_replayed"] for r in fast._regions()] == [""] * regions
    assert torchbolt.stats()["graph_breaks"] == 0


def added(out, x):
    out.add_(x.exp())
    return out * 2


def into_rows(out, x):
    out.index_add_(0, torch.tensor([0, 1, 1]), x.sin())


def where_masked(out, x):
    out[torch.tensor([True, False, True, True])] = x.sum(0).tanh()


def into_a_part(out, x):
    out[1:].copy_(x.exp())


def read_before(out, x):
    return out.mul_(x.mean()).exp_()[:3] * x, out


CASES = {f.__name__: f for f in (added, into_rows, where_masked, into_a_part, read_before)}
SIZES = {"added": 3}


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, history):
    fn, rows = CASES[name], SIZES.get(name, 4)
    fast = compiled(fn)

    def run(call, dtype):
        torch.manual_seed(1)
        x = torch.randn(3, 5).to(dtype).requires_grad_()
        before = torch.randn(rows, 5).to(dtype).requires_grad_(history)
        out = before * 1.5
        row = out[0]  # older than the write
        result = call(out, x)
        assert out.requires_grad and row.requires_grad and row.grad_fn is not None
        found = [t for t in (*(result if isinstance(result, tuple) else (result,)), out, row) if t is not None]
        loss = sum((t * torch.linspace(1, 2, t.numel(), dtype=dtype).view_as(t)).sum() for t in found)
        gradients = torch.autograd.grad(loss, [x, before] if history else [x])
        return [*found, *gradients]

    for _ in range(3):
        torch.testing.assert_close(run(fast, torch.float32), run(fn, torch.float32))
    for got, exact in zip(run(fast, torch.float32), run(fn, torch.float64), strict=True):
        torch.testing.assert_close(got, exact.float(), rtol=1e-5, atol=1e-5)
    check_compiled(fast)


def test_in_another_size():
    fast = torchbolt.compile(lambda out, x: added(out, x), dynamic=True)
    for n in (3, 5, 4, 9):
        x = torch.randn(n, 2, requires_grad=True)
        out = torch.ones(n, 2)
        fast(out, x)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], x.detach().exp())
    check_compiled(fast)


def test_gradients_of_gradients():
    fast = compiled(added)
    for _ in range(3):
        x = torch.randn(3, 2, requires_grad=True)
        out = torch.zeros(3, 2)
        fast(out, x)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(first, 2 * (2 * x).exp())
        torch.testing.assert_close(second, 4 * (2 * x).exp())
    check_compiled(fast)


def test_what_was_saved_of_it_before_is_missed_as_in_eager():
    fast = compiled(added)
    for _ in range(2):
        x = torch.randn(3, 2, requires_grad=True)
        out = torch.zeros(3, 2)
        product = out * x
        fast(out, x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


def test_a_parameter_may_not_be_written_to():
    fast = compiled(added)
    fast(torch.zeros(3, 2), torch.ones(3, 2, requires_grad=True))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        fast(nn.Parameter(torch.zeros(3, 2)), torch.ones(3, 2, requires_grad=True))


def test_experts_that_add_to_one_result():
    gate, experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    model = nn.ModuleList([gate, experts])

    def mixed(x):
        share, chosen = gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(experts):
            row, place = torch.where(chosen == i)
            out.index_add_(0, row, expert(x[row]) * share[row, place, None])
        return out

    fast = torchbolt.compile(mixed)
    for step in range(4):
        x = torch.randn(8, 4)
        wanted = torch.autograd.grad(mixed(x).square().sum(), list(model.parameters()))
        got = torch.autograd.grad(fast(x).square().sum(), list(model.parameters()))
        torch.testing.assert_close(got, wanted, msg=lambda m, step=step: f"step {step}: {m}")
    assert all(not r.get("why_replayed") for r in fast._regions())
