# tests/observe/test_places.py
"""The recorder says itself what a run read (_observe_places). Whatever is changed there, one thing at a time, a later
call gives what eager gives, and what was compiled before is good again when it is put back. A change of what was not
read costs no recording."""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
import types

import pytest
import torch
from test_mutations import outcome, same
from torch import nn

import torchbolt
from torchbolt import _C

SCALE = 2.0
TABLE = {"scale": 3.0, "names": ["a", "b"], "unread": 1}
SWITCH = True


@dataclasses.dataclass
class Config:
    width: int = 4
    factor: float = 0.5
    act: str = "relu"
    sizes: tuple = (2, 3)
    flags: list = dataclasses.field(default_factory=lambda: [True, False])
    unread: int = 7


class Slotted:
    __slots__ = ("k", "unread")

    def __init__(self):
        self.k, self.unread = 3, 4


class Base(nn.Module):
    shift = 1.0
    unread_of_the_class = 2

    @property
    def doubled(self):
        return self.factor * 2

    def helper(self, x, k=2, *, sign=1):
        return x * k * sign


class Net(Base):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.slotted = Slotted()
        self.factor = 1.5
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
        self.register_buffer("mask", torch.ones(4))
        self.register_buffer("absent", None)
        self.act = torch.tanh
        self.ordered = collections.OrderedDict(a=1, b=2)
        self.queue = collections.deque([1, 2])
        self.kinds = {1, 2}
        self.unread = [1]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        c = self.config
        x = x * c.width * c.factor + len(c.sizes) + c.sizes[0]
        x = torch.relu(x) if c.act == "relu" else x
        if c.flags[0] and self.training:
            x = x + 1
        x = self.helper(x, sign=-1) * self.doubled + self.shift + self.slotted.k
        if self.absent is not None:
            x = x + self.absent
        for name, value in self.ordered.items():
            x = x + len(name) * value
        return self.act(x * self.mask) + sum(self.queue) + len(self.kinds)


def closure():
    scale, items, nothing = 2.0, [1, 2], None

    def inner(x, k=3, *, j=4):
        return x * scale + sum(items) + k + j if nothing is None else x

    return inner


def reads_globals(x):
    y = x * SCALE + TABLE["scale"] + len(TABLE["names"])
    return y + 1 if SWITCH else y - 1


def takes_many(x, options, pair, *rest, mode="a", **others):
    y = x * options["k"] + pair[0] + len(rest)
    if options.get("absent") is None and "other" not in options:
        y = y + 1
    return y if mode == "a" and others["flag"] else -y


def partial_of(x, k, j=1):
    return x * k + j


PROGRAMS = {
    "module": lambda: (Net().eval(), (torch.randn(2, 4),), {}),
    "module in training": lambda: (Net(), (torch.randn(2, 4),), {}),
    "closure": lambda: (closure(), (torch.randn(4),), {}),
    "globals": lambda: (reads_globals, (torch.randn(4),), {}),
    "arguments": lambda: (
        takes_many,
        (torch.randn(4), {"k": 2, "unread": 3}, (1, 2.0), 5),
        {"mode": "a", "flag": True},
    ),
    "partial": lambda: (functools.partial(partial_of, k=2, j=torch.ones(4)), (torch.randn(4),), {}),
    "hooks": lambda: (hooked(), (torch.randn(2, 4),), {}),
    "sequential": lambda: (
        nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.LayerNorm(8)).eval(),
        (torch.randn(2, 4),),
        {},
    ),
}


def hooked():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    by = [2.0]
    model[0].register_forward_hook(lambda m, args, out: out * by[0])
    model.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    return model


def other_values(value):
    """What else code might find in this place."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, float(value)]
    if isinstance(value, float):
        return [value * 0.5 + 0.25, 2]
    if isinstance(value, str):
        return [value + "_"]
    if value is None:
        return [1.0]
    if isinstance(value, nn.Parameter):
        return [nn.Parameter(value.detach().double()), nn.Parameter(value.detach() * 2)]
    if isinstance(value, torch.Tensor):
        return [value.double(), value * 2, value.flatten()[:1]]
    if isinstance(value, nn.Module):
        return [nn.Identity()]
    if isinstance(value, types.FunctionType) and value.__module__ == __name__:
        return [lambda *args, **kwargs: args[-1]]
    if isinstance(value, types.BuiltinFunctionType):
        return [torch.sigmoid]
    if type(value) is tuple:
        return [(*value, 1), list(value)]
    if type(value) is list:
        return [value[:1], tuple(value)]
    if type(value) is dict:
        return [dict(list(value.items())[:1]), collections.OrderedDict(value)]
    return []


SETTERS = {
    "dict_item": lambda container, key, value: container.__setitem__(key, value),
    "list_item": lambda container, key, value: container.__setitem__(key, value),
    "deque_item": lambda container, key, value: container.__setitem__(key, value),
    "cell": lambda container, key, value: setattr(container, "cell_contents", value),
    "type_attr": lambda container, key, value: setattr(container, key, value),
    "field": lambda container, key, value: setattr(container, key, value),
}
OURS = {id(globals())}


def may_be_changed(step, container, key):
    """What belongs to this file or was made by it: torch itself is left whole."""
    if step == "type_attr":
        return container.__module__ == __name__
    if step == "dict_item" and "__name__" in container:
        return id(container) in OURS
    if step == "field":
        return isinstance(container, Slotted) or (
            isinstance(container, types.FunctionType)
            and container.__module__ == __name__
            and key in ("__defaults__", "__kwdefaults__")
        )
    return step in SETTERS


@pytest.fixture(params=PROGRAMS)
def world(request, monkeypatch):
    monkeypatch.setenv("TORCHBOLT_STRICT", "0")  # some changes cannot be compiled: eager's result is right too
    torchbolt.reset()
    torch.manual_seed(0)
    fn, args, kwargs = PROGRAMS[request.param]()
    with torch.no_grad():
        compiled = torchbolt.compile(fn, recompile_limit=10000)
        compiled(*args, **kwargs)
        _, observation = _C._observe(fn, args, kwargs)
        places = _C._observe_places(observation, fn, args, kwargs)
        yield (
            lambda: seeded(lambda: fn(*args, **kwargs)),
            lambda: seeded(lambda: compiled(*args, **kwargs)),
            places,
        )


def seeded(call):
    torch.manual_seed(0)
    return outcome(call)


def recorded():
    return torchbolt.stats()["regions"]


def test_what_was_read_may_change(world):
    eager, compiled, places = world
    tried = 0
    for path, step, container, key, value, _ in places:
        if not may_be_changed(step, container, key):
            continue
        for other in other_values(value):
            if step == "field" and type(other) is not type(value):
                continue
            SETTERS[step](container, key, other)
            try:
                got, want = compiled(), eager()
                assert same(got, want), f"{path}: {value!r} -> {other!r}"
            finally:
                SETTERS[step](container, key, value)
            tried += 1
            before = recorded()
            assert same(compiled(), eager()), f"{path} put back"
            assert recorded() == before, f"{path} put back: recorded again"
    assert tried > 3


def test_what_was_read_may_go(world):
    eager, compiled, places = world
    for path, step, container, key, value, _ in places:
        if step != "dict_item" or container is globals() or not may_be_changed(step, container, key):
            continue
        items = list(container.items())
        del container[key]
        try:
            got, want = compiled(), eager()
            assert same(got, want), f"{path} deleted"
        finally:
            container.clear()
            container.update(items)
        assert same(compiled(), eager()), f"{path} put back"


def test_what_was_not_read_does_not_matter(world):
    eager, compiled, places = world
    read = {(id(container), key) for _, _, container, key, _, _ in places}
    dicts = [
        value
        for _, step, container, _, value, _ in places
        if step == "instance_dict" and (isinstance(container, nn.Module) or type(container).__module__ == __name__)
    ]
    dicts += [value for *_, value, _ in places if value is TABLE]
    before, tried = recorded(), 0
    for attributes in dicts:
        unread = [key for key in attributes if (id(attributes), key) not in read and not key.startswith("_")]
        for key in random.Random(0).sample(unread, min(5, len(unread))):
            old = attributes[key]
            attributes[key] = object()
            assert same(compiled(), eager())
            attributes[key] = old
            tried += 1
        if attributes is not TABLE:
            attributes["never_heard_of"] = 1
            assert same(compiled(), eager())
            del attributes["never_heard_of"]
            tried += 1
        assert recorded() == before
