# tests/api/test_waiting.py
"""What was recorded is compiled when a call first fits it, where the recorded run itself has made it fit no more."""

import pytest
import torch
from torch import nn

import torchbolt
from torchbolt import api


@pytest.fixture(autouse=True)
def nothing_compiled():
    torchbolt.reset()


class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.calls = None, 0

    def forward(self, x):
        self.calls += 1
        if self.table is None:
            self.table = torch.arange(x.shape[-1], dtype=x.dtype).sin()
        return (x * self.table).tanh() + 1


def seconds_of(call):
    """What compiling takes in a call, and what the call gives."""
    before = torchbolt.stats()["compile_seconds"]
    result = call()
    return torchbolt.stats()["compile_seconds"] - before, result


def test_a_run_that_fills_a_cache_is_not_compiled():
    eager, compiled = Caching(), torchbolt.compile(Caching())
    x = torch.randn(4, 8)
    times = []
    for _ in range(4):
        seconds, result = seconds_of(lambda: compiled(x))
        times.append(seconds)
        torch.testing.assert_close(result, eager(x))
    assert times[0] == 0 and times[1] > 0 and times[3] == 0


def test_it_is_compiled_when_it_is_met_again():
    module = Caching()
    compiled = torchbolt.compile(module)
    x = torch.randn(4, 8)
    for _ in range(3):
        compiled(x)
    recordings = torchbolt.stats()["recordings"]
    module.table, module.calls = None, 0
    seconds, result = seconds_of(lambda: compiled(x))
    assert seconds > 0 and torchbolt.stats()["recordings"] == recordings
    torch.testing.assert_close(result, Caching()(x))
    assert module.calls == 1 and module.table.shape == (8,)


def test_reports_show_it_compiled():
    compiled = torchbolt.compile(Caching())
    compiled(torch.randn(4, 8))
    (region,) = api.compiled_of(compiled)._regions()
    assert region["compiled"] and region["kernels"] >= 1


def test_marked_sizes_and_whole_graphs_are_looked_at_at_once():
    whole = torchbolt.compile(Caching(), fullgraph=True)
    seconds, _ = seconds_of(lambda: whole(torch.randn(4, 8)))
    assert seconds > 0
    torchbolt.reset()
    x = torch.randn(4, 8)
    torchbolt.mark_dynamic(x, 0)
    seconds, _ = seconds_of(lambda: torchbolt.compile(Caching())(x))
    assert seconds > 0


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_whole_steps_are_compiled_once(kind):
    def made():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(model.parameters(), lr=0.01, **options)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    eager, compiled = made(), torchbolt.compile(made())
    times = []
    for i in range(5):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(i))
        seconds, loss = seconds_of(lambda x=x: compiled(x))
        times.append(seconds)
        torch.testing.assert_close(loss, eager(x))
    assert [seconds > 0 for seconds in times] == [False, True, False, False, False]


def test_steps_of_two_sizes_are_two_programs():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    @torchbolt.compile
    def step(x):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    for rows in (4, 4, 4, 3, 4, 3, 4, 3):
        before = torchbolt.stats()["recordings"]
        step(torch.randn(rows, 8))
        last = torchbolt.stats()["recordings"] - before
    assert last == 0 and torchbolt.stats()["eager_fallbacks"] == 0
    assert not any(region["breaks"] for region in api.compiled_of(step)._regions())
