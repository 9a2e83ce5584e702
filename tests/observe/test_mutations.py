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
