# tests/api/test_profiler.py
"""torch.profiler sees what a compiled call does."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

import torchbolt


def test_kernels_and_library_calls_have_names():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).eval()
    compiled, x = torchbolt.compile(model), torch.randn(8, 64)
    with torch.no_grad():
        compiled(x)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            got = compiled(x)
        torch.testing.assert_close(got, model(x))
    names = [event.key for event in seen.key_averages()]
    ours = [name for name in names if name.startswith("torchbolt::")]
    assert {"linear", "norm"} <= {part for name in ours for part in name.removeprefix("torchbolt::").split("_")}, names


def test_a_profiler_changes_nothing():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: (x * 2).relu().sum(-1))
    x = torch.randn(4, 8)
    want = compiled(x)
    with profile(activities=[ProfilerActivity.CPU]):
        got = [compiled(x) for _ in range(3)]
    assert all(torch.allclose(want, g) for g in got)
    assert torchbolt.stats()["recompiles"] == 0


def test_a_recorded_call_shows_each_operator_once():
    def f(x, y):
        return (x * y).exp().add_(y).mul_(2.0).sub_(1) + torch.cat([x, y])[:4].sum()

    x, y = torch.randn(4), torch.randn(4)

    def operators(fn):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            fn(x, y)
        return {event.key: event.count for event in seen.key_averages() if event.key.startswith("aten::")}

    f(x, y)
    assert operators(torchbolt.compile(f, backend="eager")) == operators(f)
