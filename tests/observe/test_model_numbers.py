# tests/observe/test_model_numbers.py
"""A number read out of a tensor that belongs to the model ends no region: it is guarded by what the tensor holds, and
followed once it differed between calls."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt

before: dict = {}


@pytest.fixture(autouse=True)
def fresh():
    torchbolt.reset()
    global before
    before = torchbolt.stats()
    with torch.no_grad():
        yield


def counts():
    stats = torchbolt.stats()
    return tuple(stats[key] - before[key] for key in ("recordings", "graph_breaks"))


class Model(nn.Module):
    def __init__(self, body, **tensors):
        super().__init__()
        self.body = body
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)

    def forward(self, x):
        return self.body(self, x)


def run(model, compiled, x=None):
    """Compares a call with eager's, and says how many recordings and region ends there were by now."""
    x = torch.randn(2, 4) if x is None else x
    torch.testing.assert_close(compiled(x), model(x))
    return counts()


READS = {
    "item": (lambda m, x: F.layer_norm(x, (4,), eps=m.t.item()), torch.tensor(1e-5), torch.tensor(1e-1)),
    "float": (lambda m, x: x * float(m.t), nn.Parameter(torch.tensor(2.0)), torch.tensor(3.0)),
    "int": (lambda m, x: x.roll(int(m.t), 1), torch.tensor(1), torch.tensor(2)),
    "int of a float": (lambda m, x: x + int(m.t), torch.tensor(1.5), torch.tensor(4.5)),
    "if": (lambda m, x: x * 2 if m.t else x * 3, torch.tensor(True), torch.tensor(False)),
    "if not": (lambda m, x: x * 2 if not m.t else x * 3, torch.tensor(0), torch.tensor(1)),
    "bool": (lambda m, x: x * (2 if bool(m.t) else 3), torch.tensor([1.0]), torch.tensor([0.0])),
    "tolist": (lambda m, x: x * sum(m.t.tolist()), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0])),
    "nested": (lambda m, x: x * m.t.tolist()[1][0], torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [7.0]])),
    "view": (lambda m, x: x * m.t[1].item(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0])),
    "iteration": (
        lambda m, x: sum(x * float(each) for each in m.t),
        torch.tensor([1.0, 2.0]),
        torch.tensor([1.0, 5.0]),
    ),
    "comparison": (lambda m, x: x * 2 if m.t > 2 else x * 3, torch.tensor(1), torch.tensor(3)),
    "computed": (lambda m, x: x * int(m.t.max() + 1), torch.tensor([1, 2]), torch.tensor([1, 5])),
    "range": (lambda m, x: sum(x * i for i in range(m.t)), torch.tensor(3), torch.tensor(4)),
    "math": (lambda m, x: x * math.sqrt(m.t), torch.tensor(3.0), torch.tensor(4.0)),
    "of a normalisation": (lambda m, x: F.layer_norm(x, (4,), eps=m.t), torch.tensor(1e-5), torch.tensor(1e-1)),
    "half": (lambda m, x: x * m.t.item(), torch.tensor(0.5).half(), torch.tensor(2.5).half()),
}


@pytest.mark.parametrize("name", READS)
def test_reads_end_no_region_and_see_writes(name):
    body, first, second = READS[name]
    model = Model(body, t=first.clone() if not isinstance(first, nn.Parameter) else first)
    compiled = torchbolt.compile(model)
    assert run(model, compiled) == (1, 0)
    assert run(model, compiled) == (1, 0)
    model.t.copy_(second)
    run(model, compiled)
    recordings, breaks = counts()
    assert recordings >= 2 and run(model, compiled) == (recordings, breaks)


def test_sizes_that_torch_divides():
    def body(m, x):
        pairs = torch.div(x.size(1), 2, rounding_mode="trunc")
        windows = x.as_strided(size=(x.size(0), pairs, 2), stride=(x.size(1), 2, 1))
        return x.view(x.size(0), pairs, 2) + x.new_zeros((x.size(0), pairs, 1)) + windows

    model = Model(body)
    compiled = torchbolt.compile(model)
    assert run(model, compiled) == (1, 0)
    assert run(model, compiled) == (1, 0)
    run(model, compiled, torch.randn(2, 6))
    run(model, compiled, torch.randn(3, 8))


def test_a_number_that_differed_is_followed():
    model = Model(lambda m, x: F.layer_norm(x, (4,), eps=m.eps.item()) * float(m.scale), eps=torch.tensor(1e-5))
    model.scale = nn.Parameter(torch.tensor(2.0))
    compiled = torchbolt.compile(model)
    assert run(model, compiled) == (1, 0)
    model.eps.fill_(1e-3)
    assert run(model, compiled) == (2, 0)
    for step in range(5):
        model.eps.fill_(0.01 * (step + 1))
        assert run(model, compiled) == (2, 0)


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.data.fill_(5.0),
        lambda t: t.detach().fill_(5.0),
        lambda t: t.numpy().fill(5.0),
        lambda t: t.set_(torch.tensor(5.0)),
    ],
    ids=["data", "detached", "numpy", "set"],
)
def test_writes_past_the_counter_are_seen(write):
    model = Model(lambda m, x: x * m.t.item(), t=torch.tensor(2.0))
    compiled = torchbolt.compile(model)
    assert run(model, compiled) == (1, 0)
    write(model.t)
    assert run(model, compiled) == (2, 0)


def test_a_write_of_the_same_value_changes_nothing():
    model = Model(lambda m, x: x * m.t.item(), t=torch.tensor(2.0))
    compiled = torchbolt.compile(model)
    run(model, compiled)
    model.t.fill_(2.0)
    model.t = torch.tensor(2.0)
    assert run(model, compiled) == (1, 0)


def test_another_tensor_in_its_place_is_read():
    model = Model(lambda m, x: x * m.t.item(), t=torch.tensor(2.0))
    compiled = torchbolt.compile(model)
    run(model, compiled)
    model.t = torch.tensor(3.0)
    assert run(model, compiled) == (2, 0)


def test_closures_and_globals_belong_to_the_model():
    scale = torch.tensor(2.0)

    def body(x):
        return x * scale.item() if scale > 1 else x

    compiled = torchbolt.compile(body)
    assert run(body, compiled) == (1, 0)
    scale.fill_(0.5)
    run(body, compiled)


def test_what_the_region_has_written_is_not_known():
    def body(m, x):
        m.count.add_(1)
        return x * m.count.item()

    model, twin = (Model(body, count=torch.tensor(0)) for _ in range(2))
    compiled = torchbolt.compile(model)
    for _ in range(5):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), twin(x))
    assert counts()[0] == 1


def test_a_count_of_calls_does_not_recompile_for_ever():
    def body(m, x):
        n = int(m.count)
        m.count.add_(1)
        return x.roll(n, 1) * 2

    model, twin = (Model(body, count=torch.tensor(0)) for _ in range(2))
    compiled = torchbolt.compile(model)
    for _ in range(12):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), twin(x))
    settled = counts()[0]
    for _ in range(8):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), twin(x))
    assert counts()[0] == settled <= 8


def test_tensors_among_the_arguments_stay_data():
    def body(x, t):
        return x * t.item()

    compiled = torchbolt.compile(body)
    for value in (1.0, 2.0, 3.0):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x, torch.tensor(value)), x * value)
    assert counts() == (1, 0)
