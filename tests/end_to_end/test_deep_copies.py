# tests/end_to_end/test_deep_copies.py
"""copy.deepcopy inside the function: of tensors, containers and modules, recorded once for all of a kind."""

from __future__ import annotations

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

import torchbolt
from torchbolt import api


def tensor(x):
    y = copy.deepcopy(x)
    y.add_(1)
    return y * 2, x + 1


def made(x):
    y = copy.deepcopy([x * 2, x])
    y[0].mul_(2)
    return y[0] + y[1]


def twice_the_same(x):
    y = copy.deepcopy({"a": x, "b": OrderedDict(c=[x]), "s": {1, 2}})
    y["a"].add_(1)
    return y["b"]["c"][0] * len(y["s"]), y["a"] is y["b"]["c"][0]


@pytest.mark.parametrize("fn", [tensor, made, twice_the_same], ids=lambda fn: fn.__name__)
def test_other_tensors(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for seed in range(4):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        before = x.clone()
        torch.testing.assert_close(compiled(x), fn(x))
        assert torch.equal(x, before)
    assert torchbolt.stats()["recordings"] == 1


def test_other_modules():
    def run(module, x):
        copied = copy.deepcopy(module)
        copied[0].weight.mul_(2)
        return copied(x), copied[0].weight is module[0].weight, copied.training

    def make():
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.TransformerEncoderLayer(4, 2, 8))

    torchbolt.reset()
    compiled = torchbolt.compile(run, fullgraph=True)
    first = make().eval()
    with torch.no_grad():
        for module in (first, first, make().eval(), copy.deepcopy(first)):
            weight, x = module[0].weight.clone(), torch.randn(3, 4)
            torch.testing.assert_close(compiled(module, x), run(module, x))
            assert torch.equal(module[0].weight, weight)
    assert torchbolt.stats()["recordings"] == 1


def test_views_of_one_storage():
    """Their copies are, too: what shares memory is eager's to copy."""

    def fn(x):
        a, b = copy.deepcopy([x, x.view(-1)])
        a.add_(1)
        return b, copy.deepcopy(x[0]).storage_offset()

    def halves(x, y):
        a, b = copy.deepcopy((x, y))
        a.add_(1)
        return b * 2

    torchbolt.reset()
    x = torch.arange(6.0).view(2, 3)
    for _ in range(2):
        torch.testing.assert_close(torchbolt.compile(fn)(x), fn(x))
    compiled = torchbolt.compile(halves)
    for args in ((torch.ones(2), torch.ones(2)), (x[0], x[1]), (x, x), (x[0], x[0])):
        torch.testing.assert_close(compiled(*args), halves(*args))


def test_why_regions_end():
    """Such an end leads to another, before the ids that the copy keeps, and is the cause that it gives."""

    def fn(x):
        y = x * 2
        return copy.deepcopy({"a": y[0], "b": y[1]})

    compiled = torchbolt.compile(fn)
    for _ in range(3):
        compiled(torch.ones(2, 3))
    reasons = {each["reason"] for region in api.compiled_of(compiled)._regions() for each in region["breaks"]}
    assert "is a copy of its storage" in str(reasons), reasons
    assert all(reason.count("where the region ends") <= 1 for reason in reasons), reasons


def test_numbers_that_differ():
    """A number is its own copy: which object it is decides nothing."""

    def fn(x, w):
        state = copy.deepcopy({"w": w, "pair": (w[0], [1]), "name": "t"})
        state["w"][0] += 1
        return x * copy.deepcopy(w)[0] + state["w"][0] + state["pair"][0], state, w

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for n in range(6):
        x, w = torch.randn(4), [0.5 + n, 1.5 * n, n]
        want, got = fn(x, w), compiled(x, w)
        torch.testing.assert_close(got[0], want[0])
        assert got[1:] == want[1:] and got[2] is w and got[1]["w"] is not w
    assert torchbolt.stats()["recompiles"] == 1 and torchbolt.stats()["region_ends"] == 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_attributes_of_an_ordered_dict(copied):
    """Also those that it is given, or loses, between calls."""

    def fn(x, given):
        made = OrderedDict(a=x)
        made.notes = ["made"]
        return copied(made).notes, getattr(copied(given), "notes", None), x + 1

    torchbolt.reset()
    compiled, given, x = torchbolt.compile(fn), OrderedDict(b=1.5), torch.ones(2)
    for i in range(6):
        if i == 2:
            given.notes = ["given"]
        if i == 4:
            del given.notes
        got, want = compiled(x, given), fn(x, given)
        assert got[:2] == want[:2] and torch.equal(got[2], want[2])
        assert (got[1] is want[1]) == (copied is copy.copy or want[1] is None)
    assert torchbolt.stats()["recordings"] == 2 and torchbolt.stats()["region_ends"] == 0
