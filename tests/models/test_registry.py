# tests/models/test_registry.py
"""The registry itself: models are equal in every process, and untidy enough to find mistakes."""

import dataclasses

import pytest
import torch

from bench import compare
from bench.models import MODELS, NAMES, build, find


def test_names_are_unique_and_known():
    assert len(set(NAMES)) == len(NAMES)
    with pytest.raises(KeyError, match="resnet50"):
        find("resnet")


@pytest.mark.parametrize("name", NAMES)
def test_built_twice_gives_equal_finite_outputs(name):
    one, two = build(name)(), build(name)()
    assert compare.form(one) == compare.form(two)
    for a, b in zip(compare.floating(one), compare.floating(two), strict=True):
        assert torch.equal(a, b) and bool(a.isfinite().all())


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
def test_eager_is_near_float64_and_inputs_matter(row):
    case = build(row.name)
    exact = build(row.name).to(torch.float64)()
    result = case()
    scale = max(float(t.abs().max()) for t in compare.floating(exact))
    assert compare.max_error(result, exact) < 1e-4 * scale
    assert compare.max_error(case.with_other_inputs()(), exact) > 1e-3 * scale


def test_every_parameter_matters():
    """No norm is the identity and no bias is zero: a compiler that drops one is seen."""
    model = build("bert").model
    for name, p in model.named_parameters():
        assert float(p.std()) > 0, name


def test_other_inputs_keep_shapes():
    case = build("clip")
    other = case.with_other_inputs()
    for key, value in dataclasses.asdict(case)["kwargs"].items():
        assert other.kwargs[key].shape == value.shape and other.kwargs[key].dtype == value.dtype
