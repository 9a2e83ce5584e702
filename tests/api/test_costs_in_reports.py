# tests/api/test_costs_in_reports.py
"""What explain() says each step costs: by the model of costs, and measured."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import torch

import torchbolt

pytestmark = pytest.mark.usefixtures("fresh")


def row_softmax(x, w):
    return torch.softmax((x @ w).tanh() * 2, -1)


def repeated(x):
    """Each half is worked out twice: under the indices of both halves."""
    y = x.exp()
    return torch.cat([y[:, 4:], y[:, :4]], 1) + y


X, W = torch.randn(64, 32), torch.randn(32, 48)


def test_a_kernel_says_its_bytes_its_work_and_its_time():
    seen = torchbolt.explain(row_softmax)(X, W)
    kernels = [step for step in seen.costs if step["kind"] == "kernel"]
    assert len(kernels) == 1 and kernels[0]["region"] == 1
    assert kernels[0]["bytes"] >= 64 * 48 * 4 * 2 and kernels[0]["instructions"] > 64 * 48
    assert kernels[0]["repeated"] == 0 and kernels[0]["predicted_us"] > 0
    assert all(step["measured_us"] is None for step in seen.costs)
    (other,) = [step for step in seen.costs if step["kind"] != "kernel"]
    assert other["predicted_us"] is None and other["bytes"] is None
    assert json.loads(seen.to_json())["costs"] == seen.costs


def test_what_is_repeated_shows():
    seen = torchbolt.explain(repeated)(torch.randn(16, 8))
    (kernel,) = seen.costs
    assert 0.2 < kernel["repeated"] < 0.7
    assert "repeated" in str(seen) and "measured us" not in str(seen)


def test_each_step_is_measured_in_real_calls():
    calls = torch.zeros(())

    def program(x, w):
        calls.add_(1)
        return row_softmax(x, w)

    seen = torchbolt.explain(program, measure=True)(X, W)
    assert all(0 < step["measured_us"] < 1e6 for step in seen.costs) and len(seen.costs) >= 2
    assert calls >= 6
    assert re.search(r"^  region +step +.*measured us$", str(seen), re.M)
    again = torchbolt.explain(program)(X, W)
    assert all(step["measured_us"] is None for step in again.costs)  # only while it is asked for


def test_a_generator_is_measured_whole():
    def halves(x):
        yield x.sin() + 1
        yield x.cos() + 1

    seen = torchbolt.explain(halves, measure=True)(torch.randn(300))
    assert seen.costs and all(step["measured_us"] for step in seen.costs)


def test_both_directions_of_a_training_step():
    w = torch.randn(32, requires_grad=True)
    with torch.enable_grad():
        seen = torchbolt.explain(lambda x: (x * w).tanh().sum().backward())(torch.randn(8, 32))
    assert all(step["predicted_us"] > 0 for step in seen.costs if step["kind"] == "kernel")


def test_the_page_has_them(tmp_path):
    page = torchbolt.explain(row_softmax, measure=True)(X, W).save(tmp_path / "page.html")
    facts = json.loads(re.search(r"^const facts = (.*);$", pathlib.Path(page).read_text(), re.M)[1])
    costs = [step["cost"] for step in facts["regions"][0]["steps"] if not step["once"]]
    assert all(cost["measured_us"] > 0 for cost in costs) and any(cost["predicted_us"] for cost in costs)
