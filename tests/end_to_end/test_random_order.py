"""Random operators draw in the program's order, whatever their operands wait for."""

from __future__ import annotations

import pytest
import torch

import torchbolt


def one_waits_for_a_kernel(x):
    h = x * 0.5
    late = torch._standard_gamma(h.exp().sum(0))
    return late, torch._standard_gamma(x), h + 1


def read_together(x):
    late = torch.bernoulli(x.clamp(0, 1))
    return torch.rand(3, 4) * x, late


def through_a_product(x):
    noise = torch.randn_like(x @ x.mT)
    return torch.rand(3, 1) + x, noise, torch.bernoulli(x.sigmoid()) * x


@pytest.mark.parametrize("fn", [one_waits_for_a_kernel, read_together, through_a_product])
def test_order(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for seed in range(3):
        x = torch.rand(3, 4) + 0.1
        torch.manual_seed(seed)
        want = fn(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), want)
