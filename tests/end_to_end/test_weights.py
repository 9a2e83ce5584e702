"""Weights that were folded or packed are noticed when they change, however that happens."""

from __future__ import annotations

import pytest
import torch

import torchbolt


@pytest.fixture
def pair():
    torch.manual_seed(0)
    torchbolt.reset()
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16)).eval()
    compiled = torchbolt.compile(model)
    with torch.no_grad():
        for _ in range(2):
            compiled(torch.randn(4, 32))
        yield model, compiled


def changes():
    def data(model):
        model[0].weight.data.mul_(1.5)

    def data_bias(model):
        model[2].bias.data.add_(1)

    def in_place(model):
        model[0].weight.mul_(0.5)

    def through_a_view(model):
        model[0].weight[3:5].add_(1)

    def loaded(model):
        model.load_state_dict({k: torch.randn_like(v) for k, v in model.state_dict().items()})

    def replaced(model):
        model[2].weight = torch.nn.Parameter(torch.randn(16, 64))

    def new_data(model):
        model[2].weight.data = torch.randn(16, 64)

    def average(model):
        for p in model.parameters():
            p.data.copy_(0.9 * p.data + 0.1 * torch.randn_like(p))

    return [data, data_bias, in_place, through_a_view, loaded, replaced, new_data, average]


@pytest.mark.parametrize("change", changes(), ids=lambda f: f.__name__)
def test_changes_are_noticed(pair, change):
    model, compiled = pair
    x = torch.randn(4, 32)
    for _ in range(3):
        change(model)
        torch.testing.assert_close(compiled(x), model(x))
    assert torchbolt.stats()["recompiles"] == 0


def test_a_long_loop_is_cut_into_regions():
    def f(x):
        for _ in range(25000):
            x = x + 1
        return x

    torchbolt.reset()
    compiled = torchbolt.compile(f)
    with torch.no_grad():
        for _ in range(2):
            assert compiled(torch.zeros(1)).item() == 25000
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0 and stats["break_reasons"]["the region has become very long"] == 1


def test_tensors_can_be_swapped(pair):
    model, compiled = pair
    x = torch.randn(4, 32)
    other = torch.nn.Parameter(torch.randn(64, 32))
    torch.utils.swap_tensors(model[0].weight, other)
    torch.testing.assert_close(compiled(x), model(x))
    torch.utils.swap_tensors(model[0].weight, other)
    torch.testing.assert_close(compiled(x), model(x))


def test_a_module_converted_by_swapping(pair):
    model, compiled = pair
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    x = torch.randn(4, 32, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), model(x))


def test_parameters_of_inference_mode():
    with torch.inference_mode():
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU()).eval()
        compiled, x = torchbolt.compile(model), torch.randn(4, 32)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
            model[0].weight.mul_(1.5)


@pytest.mark.parametrize("number", [2.0, [1.0, 2.0] * 16])
def test_constants_beside_weights(number):
    """What only weights and constants decide is computed once, from both."""
    torch.manual_seed(0)
    up, down = torch.nn.Parameter(torch.randn(32, 4)), torch.nn.Parameter(torch.randn(4, 32))
    weight = torch.nn.Parameter(torch.randn(32, 32))

    def lora(x):
        return torch.nn.functional.linear(x, weight + (up @ down) * torch.tensor(number)), (up @ down) * torch.tensor(
            number
        )

    torchbolt.reset()
    compiled = torchbolt.compile(lora)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(3, 32)
            torch.testing.assert_close(compiled(x), lora(x))
