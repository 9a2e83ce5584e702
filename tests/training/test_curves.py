# tests/training/test_curves.py
"""bench.curves: torchbolt's losses stay beside eager's, and a rounding is seen."""

import pytest
import torch

from bench import curves


@pytest.mark.parametrize("name", ["dlrm", "vit"])
def test_a_few_steps_are_eagers(name):
    threads = torch.get_num_threads()
    try:
        found = curves.work(name, steps=6, runs=1, threads=1)
    finally:
        torch.set_num_threads(threads)
    assert max(found["model"], found["step"]) < 1e-5 and found["last"] != found["first"]


def test_every_weight_moves_by_one_rounding():
    state = {"weight": torch.randn(100), "count": torch.tensor(3)}
    moved = curves.nudged(state, 1)
    ups = moved["weight"] > state["weight"]
    ends = torch.where(ups, torch.inf, -torch.inf)
    assert torch.equal(torch.nextafter(state["weight"], ends), moved["weight"]) and 20 < ups.sum() < 80
    assert moved["count"] == 3
