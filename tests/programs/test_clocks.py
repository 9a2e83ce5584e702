# tests/programs/test_clocks.py
"""Clocks that a program reads: what it times is the work, and a step that is timed as a whole is one region."""

import time

import pytest
import torch

import torchbolt


def trained(clock):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    times = []

    def step(x):
        begin = clock()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        times.append(clock() - begin)
        return loss.detach(), f"{times[-1]:.3f}"

    return step, model, times


@pytest.mark.parametrize("clock", [time.time, time.perf_counter, time.monotonic, time.perf_counter_ns], ids=str)
def test_a_timed_step(clock):
    torchbolt.reset()
    (eager, theirs, _), (step, ours, times) = trained(clock), trained(clock)
    step = torchbolt.compile(step)
    for seed in range(6):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(step(x)[0], eager(x)[0])
        torch.testing.assert_close(ours.weight, theirs.weight)
        begin = clock()
        step(x), eager(x)
        assert 0 < times[-1] < clock() - begin
    assert torchbolt.stats()["graph_breaks"] == 0 and torchbolt.stats()["recordings"] < 3


def test_parts_that_are_timed():
    """The second clock has operators on both sides: the region ends there, so that each part has its own time."""
    big, small, taken = torch.randn(400, 400), torch.randn(2, 2), []

    def parts(x, y):
        first = time.perf_counter()
        x = (x @ x @ x).tanh()
        second = time.perf_counter()
        y = y.sin()
        third = time.perf_counter()
        taken.append((second - first, third - second))
        return x, y

    torchbolt.reset()
    compiled = torchbolt.compile(parts)
    for _ in range(5):
        for got, want in zip(compiled(big, small), parts(big, small), strict=True):
            torch.testing.assert_close(got, want)
        assert min(taken[-2]) > 0
    longs, shorts = zip(*taken[::2], strict=True)  # eager's are the others
    assert min(shorts) < min(longs)
    assert torchbolt.stats()["recordings"] < 5
    causes = {b.reason for b in torchbolt.explain(parts)(big, small).break_reasons}
    assert any("reads a clock" in cause for cause in causes), causes
