# tests/programs/test_library_habits.py
"""What libraries do that models of torch itself do not: one region, eager's results."""

from __future__ import annotations

import collections
import itertools

import numpy
import pytest
import torch
from torch import nn

import torchbolt


class Kind:
    def scale(self):
        return 2.0


class Left(Kind):
    pass


class Right(Kind):
    def scale(self):
        return 3.0


TABLE = {(Left, Right): 5.0, (Right, Left): 7.0}
OBJECTS = [Left(), Right()]


def pairs_of_classes(x):
    return x * TABLE[type(OBJECTS[0]), type(OBJECTS[1])]


def subclasses(x):
    found = Kind.__subclasses__()
    while found:
        x = x * found.pop()().scale()
    return x


@torch.jit.script
def softclamp(t: torch.Tensor, value: float):
    return (t / value).tanh() * value


def scripted(x):
    for i, value in enumerate([1.0, 2.0]):
        x = softclamp(x * 2, value) + i
    return x


ROOT = numpy.sqrt(2.0)


def numbers_of_numpy(x):
    return x / ROOT, ROOT


class MadeByTheClass:
    def __get__(self, instance, owner=None):
        return 2.0 if instance is None else 3.0


class WithDescriptor:
    gain = MadeByTheClass()


def descriptors_read_through_the_class(x):
    return x * WithDescriptor.gain * getattr(WithDescriptor, "gain") + OBJECT.gain  # noqa: B009


OBJECT = WithDescriptor()


def distributions(x):
    found = torch.distributions.Categorical(logits=x, validate_args=False)
    action = torch.arange(1)
    return found.log_prob(action), found.entropy(), torch.distributions.Bernoulli(logits=x).mean


def chained(x):
    rows = itertools.chain.from_iterable([[x, x * 2], (x + 1,)])
    return [row * 2 for row in itertools.chain.from_iterable([y, y] for y in rows)]


def named_results(x):
    values, indices = torch.return_types.max((x * 2, x.argsort()))
    return values + 1, indices


def grouped_tensors(x):
    grouped = torch.utils._foreach_utils._group_tensors_by_device_and_dtype([[x, x * 2]], with_indices=True)
    return [t * 2 for (tensors,), _ in grouped.values() for t in tensors]


class Batch:
    """A mapping in Python, as tokenizers and collators of transformers give their tensors."""

    def __init__(self, data):
        self.data = data

    def keys(self):
        return self.data.keys()

    def __getitem__(self, key):
        return self.data[key]


def shifted(ids, mask, by=1.0):
    return ids * mask + by


def batches_as_keywords(x):
    batch = Batch({"ids": x, "mask": x > 0})
    return shifted(**batch) + shifted(**{**batch, "by": 2.0})


ONE_REGION = [
    batches_as_keywords,
    pairs_of_classes,
    subclasses,
    scripted,
    numbers_of_numpy,
    descriptors_read_through_the_class,
    distributions,
    chained,
    named_results,
    grouped_tensors,
]


@pytest.mark.parametrize("fn", ONE_REGION, ids=lambda fn: fn.__name__)
def test_one_region(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for _ in range(3):
        x = torch.randn(4)
        want, got = fn(x), compiled(x)
        torch.testing.assert_close(got, want)
    assert torchbolt.stats()["graph_breaks"] == 0 and torchbolt.stats()["recompiles"] == 0


SCALE = 2.0


def branching(x):
    return x * SCALE if x.sum() > 0 else x * 3


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_traced_function_does_what_it_did_when_it_was_traced(monkeypatch):
    traced = torch.jit.trace(branching, (torch.ones(3),), check_trace=False)
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: traced(x) + 1)
    for scale in (2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        for x in (torch.ones(3), -torch.ones(3)):
            assert torch.equal(compiled(x), x * 2 + 1)


def test_a_new_subclass_is_noticed():
    class Base:
        pass

    def fn(x):
        return x * len(Base.__subclasses__())

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x, made = torch.ones(2), []
    for n in range(3):
        assert torch.equal(compiled(x), x * n)
        made.append(type(f"Derived{n}", (Base,), {}))


@pytest.mark.parametrize("values", [(2.0, 2.0, 3.0), (float("nan"), float("nan")), (0.0, -0.0)])
def test_numbers_of_numpy_are_guarded(values):
    class Scaled(nn.Module):
        def forward(self, x):
            return x / self.k, self.k

    module = Scaled()
    torchbolt.reset()
    compiled = torchbolt.compile(module)
    for value in values:
        module.k = numpy.float64(value)
        x = torch.ones(3)
        want, got = module(x), compiled(x)
        torch.testing.assert_close(got[0], want[0], equal_nan=True)
        assert type(got[1]) is numpy.float64
    assert torchbolt.stats()["recompiles"] == len({repr(v) for v in values}) - 1


def test_a_counter_in_what_is_only_stored():
    """As transformers' ModelOutput stores a cache that counts."""

    class Output(collections.OrderedDict):
        def put(self, name, value):
            super().__setitem__(name, value)

    class State:
        def __init__(self):
            self.n = 5

    def fn(x, state):
        state.n += x.shape[0]
        out = Output()
        out.put("y", x * state.n)
        out.put("state", state)
        return out

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    mine, theirs = State(), State()
    for _ in range(6):
        x = torch.ones(3)
        want, got = fn(x, theirs), compiled(x, mine)
        assert torch.equal(got["y"], want["y"]) and got["state"] is mine and mine.n == theirs.n
    assert torchbolt.stats()["recompiles"] == 1


def test_modules_of_many_classes_in_a_loop():
    """Behind the first end of a region the loop's places are shared by all of them: no values that go on changing."""

    def module_of(i):
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                x = self.layer(x)
                if x.sum() > 1e9:
                    x = x - 1
                return x * i

        return Block()

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([module_of(i + 1) for i in range(12)])

        def forward(self, x):
            for block in self.blocks:
                x = block(x).tanh()
            return x

    stack = Stack()
    torchbolt.reset()
    compiled = torchbolt.compile(stack)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 4)
            torch.testing.assert_close(compiled(x), stack(x))
        before = torchbolt.stats()["recordings"]
        compiled(x)
    assert torchbolt.stats()["eager_fallbacks"] == 0 and torchbolt.stats()["recordings"] == before
