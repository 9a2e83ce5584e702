# tests/models/test_models.py
"""Every model of the benchmark, compiled end to end at its test size, in every dtype it supports.

Promises checked for each: the whole model is one region; later calls hit; the output has eager's classes,
dtypes and strides; it is as close to a float64 run as eager's is, also for inputs not seen before.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

import torchbolt
from bench import compare
from bench.models import MODELS, Case, build

CASES = [(row.name, dtype) for row in MODELS for dtype in row.dtypes]


@dataclasses.dataclass
class Run:
    """One compiled model, what its calls gave and what they should have given."""

    name: str
    dtype: torch.dtype
    case: Case
    compiled: torch.nn.Module
    first: object
    second: object
    other: object
    eager: object
    eager_other: object
    exact: object
    exact_other: object
    before_second: dict
    after_other: dict


@pytest.fixture(scope="module", params=CASES, ids=lambda p: f"{p[0]}-{str(p[1])[6:]}")
def run(request) -> Run:
    name, dtype = request.param
    torchbolt.reset()
    case = build(name, "test", dtype)
    other = case.with_other_inputs()
    eager, eager_other = case(), other()
    # The rounded weights and inputs are computed with exactly.
    exact_case = build(name, "test", dtype)
    exact_other = exact_case.with_other_inputs().to(torch.float64)
    exact, exact_other = exact_case.to(torch.float64)(), exact_other()

    compiled = torchbolt.compile(case.model, fullgraph=True)
    call = dataclasses.replace(case, model=compiled)
    first = call()
    before_second = torchbolt.stats()
    second = call()
    third = dataclasses.replace(other, model=compiled)()
    return Run(name, dtype, case, compiled, first, second, third, eager, eager_other, exact, exact_other,
               before_second, torchbolt.stats())  # fmt: skip


@pytest.mark.parametrize("which", ["first", "second"])
def test_output_has_eagers_form(run, which):
    assert compare.form(getattr(run, which)) == compare.form(run.eager)


@pytest.mark.parametrize("which", ["first", "second", "other"])
def test_error_is_at_most_twice_eagers(run, which):
    suffix = "_other" if which == "other" else ""
    eager, exact = getattr(run, "eager" + suffix), getattr(run, "exact" + suffix)
    got = getattr(run, which)
    assert compare.exact_parts(got) == compare.exact_parts(eager)
    allowed = 2 * compare.max_error(eager, exact) + compare.rounding_floor(exact, run.dtype)
    assert compare.max_error(got, exact) <= allowed


def test_later_calls_hit(run):
    for counter in ("regions", "recompiles", "graph_breaks", "eager_fallbacks"):
        assert run.after_other[counter] == run.before_second[counter], counter
    assert run.after_other["eager_fallbacks"] == 0


def test_whole_model_is_one_region(run):
    seen = torchbolt.explain(run.case.model)(*run.case.args, **run.case.kwargs)
    assert (seen.graph_count, seen.graph_break_count) == (1, 0), seen.break_reasons
    assert seen.kernels <= seen.kernels_before_fusion
