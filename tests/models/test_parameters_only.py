# tests/models/test_parameters_only.py
"""Nothing that depends on parameters alone is computed in a call of a frozen model: every model of the benchmark.

Told from the texts of the plans: each step of a call reads something that differs from call to call.
"""

from __future__ import annotations

import re

import pytest
import torch

import torchbolt
from bench.models import MODELS, build
from torchbolt import plans

CASES = [(row.name, dtype) for row in MODELS for dtype in row.dtypes]
_KEPT = re.compile(r"^  (b\d+) = (?:fold|input \d+: .* (?:param|const)\b)", re.M)
_ALIAS = re.compile(r"^  (b\d+) = alias (b\d+) ", re.M)


def steps_on_parameters_alone(text: str) -> list[str]:
    """Steps of each call whose operands are parameters, or made of nothing else."""
    kept, shown = set(_KEPT.findall(text)), dict(_ALIAS.findall(text))

    def owner(buffer: str) -> str:
        return owner(shown[buffer]) if buffer in shown else buffer

    found = []
    for step in plans.parse(text).steps:
        if step.once or not all(owner(b) in kept for b in step.inputs):
            continue
        kept |= {owner(b) for b in step.outputs}
        found.append(f"{step.what} ({', '.join(step.inputs)}) -> ({', '.join(step.outputs)})")
    return found


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda p: str(p).removeprefix("torch."))
def test_calls_compute_nothing_of_parameters_alone(name, dtype):
    torchbolt.reset()
    case = build(name, "test", dtype)
    with torch.no_grad():
        seen = torchbolt.explain(case.model)(*case.args, **case.kwargs)
    assert seen.plans and [steps_on_parameters_alone(text) for text in seen.plans] == [[] for _ in seen.plans]


def test_a_step_on_parameters_alone_is_seen():
    text = """plan @p: 1 kernels (of 1)
  b0 = input 0: f32[4] steps 0..1
  b1 = input 1: f32[4] param "w" steps 0..0
  b2 = alias b1 + 0: f32[2] steps 0..0
  b3 = temp @0: f32[2] steps 0..1
  b4 = output 0: f32[4] steps 1..1
run:
  0: kernel @k (b2) -> (b3)
  1: kernel @l (b0, b3) -> (b4)
return b4
"""
    assert len(steps_on_parameters_alone(text)) == 1
