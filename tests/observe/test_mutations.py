# tests/observe/test_mutations.py
"""Anything a recorded run read may change: a later call must give what eager gives, whatever one thing was changed.

Walks everything reachable from small models (module attributes, configurations, lists, dicts, class attributes of
the models' own classes) down to plain values, changes one at a time, and compares the compiled call with eager's. A
change of what was not read must not cost a recording.
"""

from __future__ import annotations

import random
import types

import pytest
import torch
import transformers

import torchbolt
from bench import compare
from bench.models import build

CHANGES = 40
# training: dropout draws random numbers. use_cache: the result holds a cache, which has no equality.
LEFT_OUT = {"training", "use_cache"}
# Asking for these once makes transformers hook its modules for good: what was recorded before holds no more.
LASTING = {"output_hidden_states", "output_attentions", "_output_attentions"}
PLAIN = (bool, int, float, str, type(None))


def changed(value):
    """Another value of a kind that code might meet in this place."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.5 + 0.25
    if isinstance(value, str):
        return value + "_"
    return False


def places(root):
    """(container, key) of every plain value that can be reached: container is a dict or a list."""
    found, seen, open_ = [], set(), [root]
    while open_:
        at = open_.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, dict):
            items = list(at.items())
        elif isinstance(at, list):
            items = list(enumerate(at))
        elif isinstance(at, torch.nn.Module) or type(at).__module__.startswith("transformers"):
            items = []
            open_.append(vars(at))
        else:
            continue
        for key, value in items:
            if isinstance(value, PLAIN) and isinstance(key, (str, int)) and key not in LEFT_OUT:
                found.append((at, key))
            elif not isinstance(value, (torch.Tensor, types.ModuleType, type)):
                open_.append(value)
    return found


def outcome(call):
    """What a call gives: its result, or the kind of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error)


def same(one, two) -> bool:
    if isinstance(one, type) or isinstance(two, type):
        return one is two
    return compare.form(one) == compare.form(two) and all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
        for a, b in zip(compare.floating(one), compare.floating(two), strict=True)
    )


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "vit", "swin", "resnet50", "whisper", "unet"])
def test_any_change_is_noticed_or_does_not_matter(name, monkeypatch):
    monkeypatch.setattr(transformers.logging.get_logger("transformers"), "disabled", True)
    monkeypatch.setenv("TORCHBOLT_STRICT", "0")  # some of these options cannot be compiled: eager's result is right too
    case = build(name)
    compiled = torchbolt.compile(case.model, recompile_limit=1000)

    misled = []

    def call():
        return compiled(*case.args, **case.kwargs)

    def eager():
        # Models take other branches where torch says that they are compiled.
        with monkeypatch.context() as patched:
            patched.setattr(torch.compiler, "_is_compiling_flag", True)
            answer = outcome(case)
        # What such a branch raises is not the answer: from there on the function is run as if nothing compiled it.
        if not isinstance(answer, type):
            return answer
        misled.append(answer)
        return outcome(case)

    with torch.no_grad():
        torchbolt.reset()
        call(), call()
        everything = places(case.model)
        for container, key in random.Random(0).sample(everything, min(CHANGES, len(everything))):
            old = container[key]
            misled.clear()
            recorded = torchbolt.stats()["regions"]
            container[key] = changed(old)
            try:
                got, want = outcome(call), eager()
                assert same(got, want), f"{key}: {old!r} -> {container[key]!r}"
            finally:
                container[key] = old
            again = torchbolt.stats()["regions"]
            assert same(outcome(call), eager()), f"{key} put back"
            if key not in LASTING and not misled:
                assert torchbolt.stats()["regions"] == again, f"{key} put back: recorded again"
            if again - recorded > 0:
                torchbolt.reset()
                call()


class Shared(torch.nn.Module):
    """What it gives tells which of the objects in it are one."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.named = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
        self.lists, self.left, self.right = [[1], [2], [3]], [3], [1]
        self.config = types.SimpleNamespace(first={"k": 1}, second={"k": 2})

    def forward(self, x):
        self.left[:] = [self.right[0] % 3 + 1]
        self.config.first["k"] = 3 - self.config.second["k"]
        self.lists[0][0] = len(self.lists[1])
        told = len(set(self.modules())), len(list(self.parameters())), len({id(each) for each in self.lists})
        told += self.layers[0] in list(self.named.values()), self.left is self.right, self.config.second["k"]
        x = x + sum(each[0] for each in self.lists)
        for layer in (*self.layers, *self.named.values()):
            x = layer(x)
        return x, told, self.left[0], self.right[0]


@pytest.mark.parametrize("seed", range(6))
def test_one_object_in_two_places(seed):
    """Two objects become one, or one two, between the calls: what the run told apart, or wrote, must be told again."""
    random_, models = random.Random(seed), []
    for _ in range(2):
        torch.manual_seed(seed)
        models.append(Shared())
    compiled = torchbolt.compile(models[0], recompile_limit=1000)

    def spots(m):
        modules, numbered = m.named._modules, m.layers._modules
        return [
            [(modules, "a"), (modules, "b"), (numbered, "0"), (numbered, "1"), (numbered, "2")],
            [(m.lists, 0), (m.lists, 1), (m.lists, 2), (vars(m), "left"), (vars(m), "right")],
            [(vars(m.config), "first"), (vars(m.config), "second")],
        ]

    with torch.no_grad():
        for _ in range(25):
            kind = random_.randrange(3)
            to, of = random_.choices(range(len(spots(models[0])[kind])), k=2)
            for model in models:
                places_ = spots(model)[kind]
                container, key = places_[of]
                value = container[key]
                container, key = places_[to]
                container[key] = value
            x = torch.randn(2, 4)
            for _ in range(random_.randint(1, 3)):
                got, want = compiled(x), models[1](x)
                torch.testing.assert_close(got[0], want[0])
                assert got[1:] == want[1:]
