# tests/training/test_memory_budget.py
"""activation_memory_budget: less is kept for the backward pass, and the gradients are the same."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import torchbolt
from torchbolt import _C
from torchbolt.options import memory_budget


@pytest.fixture(autouse=True)
def settings_as_before():
    yield
    torchbolt.config.reset()


class Block(nn.Module):
    """Attention by hand: its probabilities are large, and come again from the products for some more time."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.mix(self.norm(x)).chunk(3, -1))
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(~mask, -1e9)
        scores = nn.functional.dropout(torch.softmax(scores, -1), 0.1)
        return x + self.out((scores @ v).transpose(1, 2).flatten(2))


def model():
    return nn.Sequential(Block(), Block(), Block()).double(), torch.randn(2, 24, 32, dtype=torch.float64)


def step(run, parameters, x):
    """The gradients of a step, and the bytes that it kept beside parameters and input."""
    torch.manual_seed(1)
    known = {t.untyped_storage().data_ptr() for t in [x, *parameters]}
    kept = {}

    def pack(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = run(x).square().mean()
        nbytes = sum(n for at, n in kept.items() if at not in known)
    return torch.autograd.grad(loss, parameters), nbytes


def kept_and_right(budget, net, x):
    run = torchbolt.compile(net, options={"activation_memory_budget": budget})
    parameters = list(net.parameters())
    expected, _ = step(net, parameters, x)
    for _ in range(2):  # recorded, and compiled
        gradients, nbytes = step(run, parameters, x)
        torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)
    assert torchbolt.stats()["eager_fallbacks"] == 0
    return nbytes


def test_less_is_kept_and_gradients_stay():
    net, x = model()
    kept = [kept_and_right(budget, net, x) for budget in ("2GB", 1.0, 0.5, 0.0, "1kB")]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == kept[-2] < kept[0] * 0.8  # nothing is low enough: then the least that is possible
    assert kept[1] == kept_and_right(None, net, x)


def test_dropout_draws_the_same_numbers_again():
    class Dropping(nn.Module):
        def forward(self, x):
            return torch.tanh(nn.functional.dropout(x.exp(), 0.5)).exp().sin()

    x = torch.randn(64, 64, requires_grad=True)
    for budget in (0.0, 1.0):
        run = torchbolt.compile(Dropping(), options={"activation_memory_budget": budget})
        for _ in range(3):
            torch.manual_seed(7)
            expected = torch.autograd.grad(Dropping()(x).sum(), x)
            torch.manual_seed(7)
            torch.testing.assert_close(torch.autograd.grad(run(x).sum(), x), expected)


def test_the_setting_holds_where_no_option_does():
    net, x = model()
    usual, much = kept_and_right(None, net, x), kept_and_right("2GB", net, x)
    torchbolt.config.activation_memory_budget = "2GB"
    assert kept_and_right(None, net, x) == much > usual
    assert kept_and_right(1.0, net, x) == usual
    torchbolt.config.activation_memory_budget = None
    assert kept_and_right(None, net, x) == usual


@pytest.mark.parametrize("order", ["before", "after"])
def test_torchs_setting_after_install(order):
    lines = {
        "before": "import torch._functorch.config as c; c.activation_memory_budget = 0.25; torchbolt.install()",
        "after": "torchbolt.install(); import torch._functorch.config as c; c.activation_memory_budget = 0.25",
    }
    code = f"""
import torch, torchbolt
{lines[order]}
assert torchbolt.config.activation_memory_budget == 0.25
c.activation_memory_budget = 1.0
assert torchbolt.config.activation_memory_budget is None
torchbolt.uninstall()
c.activation_memory_budget = 0.5
assert torchbolt.config.activation_memory_budget is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("given", "number"),
    [(0, 0), (0.5, 0.5), (1, 1), ("2GB", 2e9), ("1.5 GiB", 1.5 * 2**30), ("500mb", 5e8), ("0B", 2), (4096, 4096)],
)
def test_texts(given, number):
    assert memory_budget(given) == number


@pytest.mark.parametrize("given", [-0.1, "lots", "2", "2XB", "iB", float("inf"), True, "2G"])
def test_what_is_no_budget_is_refused(given):
    with pytest.raises(torchbolt.exc.ArgumentError, match="share from 0 to 1"):
        torchbolt.compile(torch.sin, options={"activation_memory_budget": given})
    with pytest.raises(torchbolt.exc.ArgumentError, match="share from 0 to 1"):
        torchbolt.config.activation_memory_budget = given
    assert torchbolt.config.activation_memory_budget is None


def test_a_plain_number_is_taken_by_the_extension():
    with pytest.raises(TypeError):
        _C._configure("activation_memory_budget", "2GB")
