# tests/api/test_profiler.py
"""torch.profiler sees what a compiled call does."""

from __future__ import annotations

import collections
import json

import pytest
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


def rows(seen, path):
    """Of the file that Perfetto opens: its complete events, by process and thread, in the order of time."""
    seen.export_chrome_trace(str(path))
    found = collections.defaultdict(list)
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return [sorted(events, key=lambda e: (e["ts"], -e["dur"])) for events in found.values()]


def trained():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("more", [{}, {"with_stack": True, "record_shapes": True, "profile_memory": True}])
def test_a_trace_is_one_that_perfetto_opens(more, tmp_path):
    step, x = torchbolt.compile(trained()), torch.randn(8, 64)
    for _ in range(3):
        step(x)
    with profile(activities=[ProfilerActivity.CPU], **more) as seen:
        step(x)
    names = set()
    for events in rows(seen, tmp_path / "trace.json"):
        within = []
        for event in events:
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert event["dur"] >= 0 and event["name"]
            while within and within[-1] <= begin:
                within.pop()
            assert not within or end <= within[-1] + 1e-3, event["name"]  # slices of a row lie in each other
            within.append(end)
            names.add(event["name"])
    assert any("norm" in name for name in names if name.startswith("torchbolt::")), names


def test_kernels_have_shapes_and_lines_where_they_are_asked_for(tmp_path):
    def fn(x, y):
        return (x * y).sum(-1)

    compiled, x, y = torchbolt.compile(fn), torch.randn(4, 8), torch.randn(8)
    compiled(x, y)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        compiled(x, y)
    (ours,) = (e for events in rows(seen, tmp_path / "trace.json") for e in events if e["name"].startswith("torchbolt"))
    assert sorted(ours["args"]["Input Dims"]) == [[4, 8], [8]] and ours["args"]["Input type"] == ["float", "float"]
    line = fn.__code__.co_firstlineno + 1
    assert ours["args"]["source"].endswith(f"test_profiler.py:{line}") and ours["args"]["function"].endswith("fn")
