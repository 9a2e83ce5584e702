# tests/end_to_end/test_dict_clock.py
"""A model with so many dicts that none is looked at while none has changed: every way to change one is noticed."""

from __future__ import annotations

import collections

import pytest
import torch
from torch import nn

import torchbolt


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = {"scale": 2.0, "shift": 1.0}
        self.order = collections.OrderedDict(a=1.0, b=2.0)
        self.factor = 3.0

    def forward(self, x):
        x = x * self.config["scale"] + self.config.get("shift", 0.0)
        for i, value in enumerate(self.order.values()):
            x = x + i * value
        return x * self.factor if "off" not in self.config else x


@pytest.fixture
def model():
    torchbolt.reset()
    return nn.Sequential(*[Part() for _ in range(12)])


def hook(module, args, output):
    return output + 1


CHANGES = {
    "setitem": lambda p: p.config.__setitem__("scale", p.config["scale"] + 1),
    "a new key": lambda p: p.config.__setitem__("off", True),
    "del": lambda p: p.config.__delitem__("shift"),
    "pop": lambda p: p.config.pop("shift"),
    "popitem": lambda p: p.config.popitem(),
    "setdefault": lambda p: p.config.setdefault("off", True),
    "update": lambda p: p.config.update(scale=5.0),
    "in-place or": lambda p: p.config.__ior__({"scale": 6.0}),
    "clear and refill": lambda p: (p.config.clear(), p.config.update(scale=7.0)),
    "another dict": lambda p: setattr(p, "config", {"scale": 8.0}),
    "attribute": lambda p: setattr(p, "factor", 4.0),
    "instance dict": lambda p: p.__dict__.__setitem__("factor", 5.0),
    "another instance dict": lambda p: setattr(p, "__dict__", {**p.__dict__, "factor": 6.0}),
    "ordered: end": lambda p: p.order.move_to_end("a"),
    "ordered: value": lambda p: p.order.__setitem__("b", 9.0),
    "ordered: popitem": lambda p: p.order.popitem(last=False),
    "hook": lambda p: p.register_forward_hook(hook),
    "hook by hand": lambda p: p._forward_hooks.__setitem__(12345, hook),
    "class": lambda p: setattr(p, "__class__", Other),
}  # fmt: skip


class Other(Part):
    def forward(self, x):
        return super().forward(x) - 1


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("at", [0, 11])
def test_every_change_is_noticed(model, name, at):
    compiled, x = torchbolt.compile(model), torch.randn(8)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x))
    CHANGES[name](model[at])
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x))
    if at == 0:
        for part in list(model)[5:7]:
            CHANGES[name](part)
            torch.testing.assert_close(compiled(x), model(x))


def test_other_dicts_make_nothing_new(model):
    compiled, x, unrelated = torchbolt.compile(model), torch.randn(8), {}
    compiled(x)
    before = torchbolt.stats()["recompiles"]
    for i in range(20):
        unrelated[i] = {"made": i}
        torch.testing.assert_close(compiled(x), model(x))
    assert torchbolt.stats()["recompiles"] == before
