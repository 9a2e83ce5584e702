# tests/training/test_eager_numerics_backward.py
"""numerics="eager" in both directions: gradients of half types are eager's, whether values are kept or made again."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchbolt

HALVES = [torch.bfloat16, torch.float16]


class RmsNorm(nn.Module):
    """Written out, as models have it."""

    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


CASES = {
    "pointwise": lambda x, y, n: (x * y + x).relu() * 0.3 - y / (x.abs() + 1),
    "used again": lambda x, y, n: (z := x * y) * z + z - x.clamp(-1, 1) * z,
    "swiglu": lambda x, y, n: x + F.silu(x * y) * y,
    "gelu": lambda x, y, n: F.gelu(x * y) + F.gelu(y, approximate="tanh"),
    "functions": lambda x, y, n: torch.tanh(x) * torch.sigmoid(y) + torch.exp(-x.abs()),
    "layer norm": lambda x, y, n: F.layer_norm(x * y + x, (65,)) * y,
    "by hand": lambda x, y, n: n(x * y) + x,
    "softmax": lambda x, y, n: F.softmax(x * y * 0.3, -1) * y,
}
# Whose sums are made in another order than eager's.
SUMS = {"layer norm", "by hand", "softmax"}


def gradients(f, x, y, norm, into):
    leaves = [x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()]
    norm.zero_grad()
    out = f(*leaves, norm)
    out.backward(into)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("budget", [None, 0.0], ids=["kept", "made again"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, dtype, budget):
    torch.manual_seed(0)
    x, y, into = (torch.randn(33, 65).to(dtype) for _ in range(3))
    norm = RmsNorm(65).to(dtype)
    options = {"numerics": "eager", "activation_memory_budget": budget}
    run = torchbolt.compile(CASES[name], fullgraph=True, options=options)
    want = gradients(CASES[name], x, y, norm, into)
    for _ in range(3):
        got = gradients(run, x, y, norm, into)
    for a, b in zip(got, want, strict=True):
        differ = (a != b).float().mean().item()
        if name in ("pointwise", "used again"):
            assert differ == 0
        else:
            assert differ < (0.01 if name in SUMS else 0.002)
            torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)


def test_a_whole_step_under_autocast():
    """As far from eager's as products are, which libraries add up in their own order."""

    def train(options, steps=6):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.randn(steps, 24, 16)

        def step(x):
            with torch.autocast("cpu", torch.bfloat16):
                loss = (model(x) * 0.3).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        run = torchbolt.compile(step, options=options) if options else step
        return torch.stack([run(x) for x in data])

    torch.testing.assert_close(train({"numerics": "eager"}), train(None), rtol=1e-3, atol=1e-4)
