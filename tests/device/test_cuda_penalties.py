# tests/device/test_cuda_penalties.py
"""Passes inside of a region whose gradients are differentiated themselves, on CUDA. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchbolt

JUDGES = {
    "smooth": lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)),
    "norms": lambda: nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.Tanh(), nn.RMSNorm(64), nn.Linear(64, 1)),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3, padding=1), nn.Softplus(), nn.Flatten(), nn.Linear(64, 1)
    ),
}


def penalty(judge, x):
    score = judge(x)
    (g,) = torch.autograd.grad(score, x, torch.ones_like(score), create_graph=True)
    return ((g.flatten(1).norm(dim=1) - 1) ** 2).mean()


def trained(name, wrap_step, wrap_penalty):
    torch.manual_seed(1)
    judge = JUDGES[name]().double().cuda()
    opt = torch.optim.SGD(judge.parameters(), lr=0.05)
    of = wrap_penalty(lambda x: penalty(judge, x))

    def step(real, fake, share):
        opt.zero_grad()
        mixed = (share * real + (1 - share) * fake).requires_grad_()
        loss = judge(fake).mean() - judge(real).mean() + 10 * of(mixed)
        loss.backward()
        opt.step()
        return loss.detach()

    call, losses = wrap_step(step), []
    draw = torch.Generator().manual_seed(0)
    for _ in range(5):
        given = [torch.randn(8, 16, generator=draw, dtype=torch.float64).cuda() for _ in range(2)]
        losses.append(call(*given, torch.rand(8, 1, generator=draw, dtype=torch.float64).cuda()))
    return torch.stack(losses), [p.detach().clone() for p in judge.parameters()]


@pytest.mark.parametrize("whole", [True, False], ids=["step", "penalty alone"])
@pytest.mark.parametrize("name", JUDGES)
def test_a_penalty_on_slopes(anew, name, whole):
    as_it_is = lambda f: f  # noqa: E731
    want = trained(name, as_it_is, as_it_is)
    got = trained(name, *((torchbolt.compile, as_it_is) if whole else (as_it_is, torchbolt.compile)))
    torch.testing.assert_close(got, want)
    stats = torchbolt.stats()
    assert 1 <= stats["regions"] <= 2 and stats["eager_fallbacks"] == 0, stats
