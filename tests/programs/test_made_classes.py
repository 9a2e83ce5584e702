# tests/programs/test_made_classes.py
"""Classes that are made while a compiled function runs: others in each call, whatever makes them."""

from __future__ import annotations

import collections
import dataclasses
import enum
import subprocess
import sys
import types

import pytest
import torch

import torchbolt


class Plain(type):
    pass


class Refusing(type):
    def __setattr__(cls, name, value):
        if name in cls.__dict__["kept"]:
            raise AttributeError(f"cannot reassign {name}")
        super().__setattr__(name, value)


class Making(type):
    def __new__(meta, name, bases, body):
        return super().__new__(meta, name, bases, body)


class Starting(type):
    def __init__(cls, *args):
        pass


class Calling(type):
    def __call__(cls, *args):
        return type.__call__(cls, *args)


class CallingAndStarting(Calling):
    def __init__(cls, *args):
        pass


METACLASSES = [type, Plain, Refusing, Making, Starting, Calling, CallingAndStarting]


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("meta", METACLASSES, ids=lambda m: m.__name__)
def test_a_class_by_its_metaclass(meta, breaks):
    def fn(x):
        body = {}
        body["kept"] = kept = {}
        if breaks:
            torchbolt.graph_break()
        body["doc"] = 1
        cls = meta("Made", (), body)
        cls.first = x * 2
        kept["first"] = 3
        return cls, kept

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    classes = []
    for i in range(4):
        x = torch.full((2,), float(i))
        cls, kept = compiled(x)
        assert type(cls) is meta and cls.kept is kept == {"first": 3} and torch.equal(cls.first, x * 2)
        assert cls not in classes
        classes.append(cls)


MAKERS = {
    "types.new_class": lambda kept: types.new_class("Made", (), {}, lambda body: body.update(kept=kept)),
    "type.__new__": lambda kept: type.__new__(type, "Made", (), {"kept": kept}),
    "type of a type": lambda kept: type(int)("Made", (), {"kept": kept}),
    "make_dataclass": lambda kept: dataclasses.make_dataclass("Made", ["a"], namespace={"kept": kept}),
    "Enum": lambda kept: enum.Enum("Made", ["kept", "a"]),
    "namedtuple": lambda kept: collections.namedtuple("Made", ["kept", "a"]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_class_by_a_library(name):
    torchbolt.reset()
    compiled = torchbolt.compile(MAKERS[name], recompile_limit=100)
    classes = []
    for _ in range(4):
        kept = []
        cls = compiled(kept)
        assert cls not in classes and hasattr(cls, "kept")
        if name not in ("Enum", "namedtuple"):
            assert cls.kept is kept
        classes.append(cls)


FIRST_ANOTHER = """
import enum, torch, torchbolt

class Way(enum.Flag):
    LEFT, RIGHT = 1, 2

assert torchbolt.compile(lambda: Way.LEFT | Way.RIGHT)() is Way.LEFT | Way.RIGHT  # object.__new__
make = torchbolt.compile(lambda kept: type.__new__(type, "Made", (), {"kept": kept}))
for _ in range(3):
    kept = []
    assert make(kept).kept is kept
"""


def test_the_new_of_one_class_is_not_that_of_another():
    """In a process of its own: what is known of natives is looked up once."""
    subprocess.run([sys.executable, "-c", FIRST_ANOTHER], check=True)
