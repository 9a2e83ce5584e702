# tests/end_to_end/test_weights.py
"""Weights that were folded or packed are noticed when they change, however that happens."""

from __future__ import annotations

import ctypes

import numpy
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

    # Parts of a tensor, of which the version counter does not tell.
    def some_of_data(model):
        model[0].weight.data[[3, 9]] = torch.randn(2, 32)

    def clipped_data(model):
        model[0].weight.data.clamp_(-0.08, 0.08)

    def element_of_an_array(model):
        model[0].weight.numpy()[3, 4] += 100

    def element_of_an_asarray(model):
        numpy.asarray(model[0].weight.detach())[3, 4] += 100

    def element_through_dlpack(model):
        torch.from_dlpack(model[0].weight.detach())[3, 4] += 100

    def element_of_the_storage(model):
        storage = model[0].weight.untyped_storage()
        torch.empty(0).set_(storage, 0, (64, 32))[3, 4] += 100

    def element_by_address(model):
        (ctypes.c_float * 2048).from_address(model[0].weight.data_ptr())[100] += 100

    partly = [some_of_data, clipped_data, element_of_an_array, element_of_an_asarray, element_through_dlpack]
    return [data, data_bias, in_place, through_a_view, loaded, replaced, new_data, average, *partly] + [
        element_of_the_storage,
        element_by_address,
    ]


@pytest.mark.parametrize("change", changes(), ids=lambda f: f.__name__)
def test_changes_are_noticed(pair, change):
    model, compiled = pair
    x = torch.randn(4, 32)
    for _ in range(3):
        change(model)
        torch.testing.assert_close(compiled(x), model(x))
    assert torchbolt.stats()["recompiles"] == 0


@pytest.mark.parametrize("backend", ["torchbolt", "aot_eager", "eager"])
def test_writes_through_data_by_another_compiled_function(pair, backend):
    model, compiled = pair

    def change(weight):
        weight.data[3].add_(1)

    x, compiled_change = torch.randn(4, 32), torchbolt.compile(change, backend=backend)
    for _ in range(4):
        before = model[0].weight._version
        compiled_change(model[0].weight)
        assert model[0].weight._version == before
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    "alias", [lambda w: w.data, lambda w: w.numpy(), lambda w: w.untyped_storage(), torch.from_dlpack]
)
def test_writes_through_what_is_kept(alias, before):
    """Handed out before the weights were packed, or after, and written at any time later."""

    def write(number):
        if isinstance(kept, torch.UntypedStorage):
            torch.empty(0).set_(kept, 0, (64, 64))[3, 4] = number
        else:
            kept[3, 4] = number

    torchbolt.reset()
    model = torch.nn.Linear(64, 64).requires_grad_(False)
    compiled, x = torchbolt.compile(model), torch.randn(4, 64)
    with torch.no_grad():
        for ready in range(3):
            if before == (ready == 0):
                kept = alias(model.weight)
            compiled(x)
        for number in range(100, 105):
            write(number)
            torch.testing.assert_close(compiled(x), model(x))
            torch.testing.assert_close(compiled(x), model(x))
    assert torchbolt.stats()["recompiles"] == 0


@pytest.mark.parametrize("make", [torch.from_numpy, torch.from_dlpack, lambda a: torch.from_numpy(a).expand(64, 64)])
def test_memory_that_belongs_to_an_array(make):
    array = numpy.random.default_rng(0).standard_normal((64, 64), dtype=numpy.float32)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = make(array)

        def forward(self, x):
            return x @ self.table

    torchbolt.reset()
    model = Model()
    compiled, x = torchbolt.compile(model), torch.randn(4, 64)
    with torch.no_grad():
        for number in range(100, 106):
            torch.testing.assert_close(compiled(x), model(x))
            array[3, 4] = number


def test_expanded_weights():
    row = torch.randn(64)
    model = torch.nn.Linear(64, 64)
    model.weight = torch.nn.Parameter(row.expand(64, 64), requires_grad=False)
    compiled, x = torchbolt.compile(model), torch.randn(4, 64)
    with torch.no_grad():
        for i in range(5):
            torch.testing.assert_close(compiled(x), model(x))
            row.data[i] = 100


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


def test_weights_that_keep_changing_are_not_folded(pair):
    model, compiled = pair
    x = torch.randn(4, 32)
    before = torchbolt.stats()["specialized"]
    for _ in range(8):  # an optimizer's steps between calls
        model[0].weight.mul_(0.9)
        model[2].weight.add_(0.01)
        torch.testing.assert_close(compiled(x), model(x))
        torchbolt.wait()
    assert torchbolt.stats()["specialized"] == before + 1
    for _ in range(20):  # they rest again
        torch.testing.assert_close(compiled(x), model(x))
    model[0].weight.mul_(0.9)
    torch.testing.assert_close(compiled(x), model(x))
    assert torchbolt.stats()["specialized"] == before + 1


def busy(seed):
    """The thread in the background has something else to compile for a while."""
    parts = [torch.nn.Linear(8 + i, 9 + i) for i in range(24)]

    def heavy(x):
        for i, part in enumerate(parts):
            x = torch.sin(part(x)) * (seed + i) + torch.erf(x).sum()
        return x

    with torch.no_grad():
        torchbolt.compile(heavy, background=True)(torch.randn(3, 8))


def count(call, times):
    """By how much it grew in these calls: foldings, those made again, calls that one served."""
    names = ("foldings", "foldings_again", "folded_calls")
    before = torchbolt.stats()
    for _ in range(times):
        call()
    after = torchbolt.stats()
    return tuple(after[name] - before[name] for name in names)


def train(model, call, steps):
    for _ in range(steps):
        model[0].weight.mul_(0.9)
        call()


def test_foldings_are_counted(pair):
    model, compiled = pair
    x = torch.randn(4, 32)
    assert count(lambda: compiled(x), 5) == (0, 0, 5)
    model[0].weight.mul_(0.9)
    assert count(lambda: compiled(x), 5) == (1, 1, 4)
    fresh = torchbolt.compile(torch.nn.Linear(3, 4))
    assert count(lambda: fresh(torch.ones(2, 3)), 4)[:2] == (1, 0)


def test_weights_that_rest_are_folded_once_while_another_program_is_made(pair):
    model, compiled = pair
    x = torch.randn(4, 32)
    busy(1.5)
    train(model, lambda: compiled(x), 5)
    assert count(lambda: compiled(x), 3) == (0, 0, 3)
    torch.testing.assert_close(compiled(x), model(x))


def test_weights_that_have_rested_for_a_few_calls_stay_folded(pair):
    model, compiled = pair
    x = torch.randn(4, 32)
    busy(2.5)
    train(model, lambda: compiled(x), 5)
    assert count(lambda: compiled(x), 6) == (0, 0, 6)
    torchbolt.wait()
    assert count(lambda: compiled(x), 6) == (0, 0, 6)
    torch.testing.assert_close(compiled(x), model(x))


def test_weights_that_change_once_an_epoch_stay_folded(pair):
    model, compiled = pair
    before = torchbolt.stats()["specialized"]
    for _ in range(6):
        model[0].weight.mul_(0.9)
        for _ in range(6):
            x = torch.randn(4, 32)
            torch.testing.assert_close(compiled(x), model(x))
    torchbolt.wait()
    assert torchbolt.stats()["specialized"] == before
