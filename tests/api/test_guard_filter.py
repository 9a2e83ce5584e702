# tests/api/test_guard_filter.py
"""guard_filter_fn: what is not guarded is not looked at again, and what is on tensors is always guarded."""

from __future__ import annotations

import pytest
import torch

import torchbolt

FACTOR = 2.0


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = torch.nn.Linear(4, 4), 3.0

    def forward(self, x):
        return self.linear(x) * self.scale * FACTOR


@pytest.fixture
def model():
    torchbolt.reset()
    with torch.no_grad():
        yield Scaled().eval()


def test_a_filter_sees_the_guards(model):
    seen = []

    def keep_all(entries):
        seen.extend(entries)
        return [True] * len(entries)

    compiled, x = torchbolt.compile(model, options={"guard_filter_fn": keep_all}), torch.randn(2, 4)
    compiled(x)
    by_name = {(e.name, e.guard_type): e for e in seen}
    scale = by_name[("self.scale", "EQUALS_MATCH")]
    assert scale.value == 3.0 and not scale.is_global
    assert scale.orig_guard.source.is_unspecialized_nn_module()
    assert not scale.orig_guard.source.is_unspecialized_builtin_nn_module()
    assert any(e.guard_type == "TENSOR_MATCH" and "linear" in e.name for e in seen)
    assert any(e.is_global and e.value == 2.0 for e in seen)
    model.scale = 5.0
    torch.testing.assert_close(compiled(x), model(x))
    assert torchbolt.stats()["recompiles"] == 1


@pytest.mark.parametrize(
    "name", ["skip_guard_on_all_nn_modules_unsafe", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe"]
)
def test_what_is_not_guarded_stays(model, name):
    compiled = torchbolt.compile(model, options={"guard_filter_fn": getattr(torch.compiler, name)})
    x = torch.randn(2, 4)
    before = model(x)
    compiled(x)
    model.scale = 5.0
    torch.testing.assert_close(compiled(x), before)
    y = torch.randn(3, 4)  # tensors are guarded whatever the filter says
    torch.testing.assert_close(compiled(y), model(y))


def test_globals_without_guards(model, monkeypatch):
    options = {"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}
    compiled, x = torchbolt.compile(model, options=options), torch.randn(2, 4)
    before = model(x)
    compiled(x)
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    torch.testing.assert_close(compiled(x), before)
    model.scale = 5.0
    torch.testing.assert_close(compiled(x), model(x))


def test_wrong_filters(model):
    with pytest.raises(TypeError, match="guard_filter_fn must be callable"):
        torchbolt.compile(model, options={"guard_filter_fn": 3})
    for answer, words in (([True], "gave 1 answers for .*one for each"), (None, "a list of bools.*, not None")):
        with pytest.raises(ValueError, match=words):
            torchbolt.compile(model, options={"guard_filter_fn": lambda entries: answer})(torch.randn(2, 4))
