"""Modes and options: known names, contradictions, and what they stand for."""

from __future__ import annotations

import pytest
import torch

import torchbolt


def double(x):
    return x * 2


def test_lists():
    assert {"max_autotune", "epilogue_fusion", "triton.cudagraphs"} <= set(torchbolt.list_options())
    assert torchbolt.list_mode_options() == {
        "default": {},
        "reduce-overhead": {"triton.cudagraphs": True},
        "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
        "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
    }
    assert torchbolt.list_mode_options("reduce-overhead") == {"triton.cudagraphs": True}
    with pytest.raises(ValueError, match="Did you mean 'max-autotune'"):
        torchbolt.list_mode_options("max-autotun")


def test_every_option_has_an_effect_or_a_reason():
    for name, text in torchbolt.describe_options().items():
        assert not text.startswith("accepted") or text.startswith("accepted: "), name


@pytest.mark.parametrize("mode", torchbolt.list_mode_options())
def test_every_mode_and_its_own_options(mode):
    compiled = torchbolt.compile(double, mode=mode, options=torchbolt.list_mode_options(mode))
    with torch.no_grad():
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_a_contradiction():
    with pytest.raises(ValueError, match="mode 'max-autotune' sets 'max_autotune' to True, options to False"):
        torchbolt.compile(double, mode="max-autotune", options={"max_autotune": False})


def test_wrong_names_and_types():
    with pytest.raises(ValueError, match="Did you mean 'epilogue_fusion'"):
        torchbolt.compile(double, options={"epilog_fusion": True})
    with pytest.raises(TypeError, match="'max_autotune' must be bool, not str"):
        torchbolt.compile(double, options={"max_autotune": "yes"})
    with pytest.raises(TypeError, match="name must be a text"):
        torchbolt.compile(double, name=3)


def test_options_with_an_effect():
    torchbolt.reset()
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="scale was compiled 1 times"):
        compiled = torchbolt.compile(double, options={"recompile_limit": 1}, name="scale")
        compiled(torch.ones(2)), compiled(torch.ones(3))
    torchbolt.reset()
    with torch.no_grad():
        compiled = torchbolt.compile(double, options={"background": True})
        compiled(torch.ones(2)), torchbolt.wait()
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
