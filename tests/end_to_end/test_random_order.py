# tests/end_to_end/test_random_order.py
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


def with_gaps(x):
    y = torch.zeros(16, 32)
    y[:, ::2].normal_()
    return y


def copied_from_columns(x):
    torch.nn.init.orthogonal_(x)
    x.normal_(0, 2)
    return x


LAYOUTS = {
    "copied from columns": copied_from_columns,
    "copied from a result": lambda x: torch.zeros(16, 16).copy_(x.t().exp()).uniform_(),
    "with gaps": with_gaps,
    "copied densely": lambda x: x.t().contiguous().uniform_(),
    "softmax of columns": lambda x: x.t().log_softmax(0).uniform_(),
    "choices": lambda x: torch.multinomial(x.t().softmax(-1), 2),
    "turned round": lambda x: x.t().flip(0).uniform_(),
    "norm": lambda x: torch.nn.functional.layer_norm(x.t(), (16,)).bernoulli_(0.5),
    "images": lambda x: torch.nn.functional.group_norm(x.view(1, 4, 8, 8).mT, 2).exponential_(),
    "columns": lambda x: (x.t() + 1).normal_(),
    "like columns": lambda x: torch.rand_like(x.t() * 2),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_are_given_out_in_the_order_of_eagers_memory(name, dynamic):
    """Which number an element gets depends on how the tensor lies, and for some on whether there are gaps."""
    fn = LAYOUTS[name]
    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=dynamic)
    for seed in range(3):
        x = torch.rand(16, 16)
        torch.manual_seed(seed)
        want, state = fn(x.clone()), torch.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x.clone()), want)
        assert torch.equal(torch.get_rng_state(), state)
