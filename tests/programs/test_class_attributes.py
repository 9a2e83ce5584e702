# tests/programs/test_class_attributes.py
"""What a program writes to classes: counters of what was made, handles of hooks, defaults that change."""

import sys

import pytest
import torch
from rows import HIT, MISS, Rows, randn

import torchbolt

ROWS = Rows()


@ROWS.made(randn(3), expect=(MISS, MISS, HIT, HIT), regions=2)
def a_class_counts_what_it_made():
    class Made:
        count = 0

        def __init__(self):
            self.number = Made.count
            Made.count += 1

    return lambda x: (x + Made().number, Made().number, Made.count)


@ROWS.made(randn(3), expect=(MISS, HIT, HIT))
def a_default_that_a_program_sets():
    class Options:
        scale = 1.0

    def fn(x):
        Options.scale = 2.0
        Options.last = x + 1
        return x * Options.scale, Options.last, Options().scale

    return fn


@ROWS.made(randn(3), expect=(MISS, MISS, HIT, HIT), regions=2)
def a_class_method_counts():
    class Base:
        calls = 0

        @classmethod
        def note(cls):
            cls.calls += 1
            return cls.calls

    class Derived(Base):
        pass

    return lambda x: (x * Derived.note(), Derived.note(), Base.calls)


@ROWS.made(randn(3), ends="through a class below it", regions=2)
def what_a_class_below_inherits():
    class Base:
        scale = 1.0

    class Derived(Base):
        pass

    def fn(x):
        y = x * Derived.scale
        Base.scale = 3.0 - Base.scale
        return y + Derived.scale

    def settled(x):
        Base.scale = 1.0
        return fn(x)

    return settled


# Before 3.12 super() is called before it is asked, and the region ends before the call the next time.
SUPER_IS_CALLED = sys.version_info < (3, 12)


@ROWS.made(randn(3), expect=(MISS, MISS if SUPER_IS_CALLED else HIT, HIT, HIT), ends="super() is asked", regions=2)
def what_super_finds():
    class Base:
        scale = 1.0

    class Derived(Base):
        def scaled(self, x):
            y = x + 1
            Base.scale = 2.0
            return y * super().scale

    return lambda x: Derived().scaled(x)


@ROWS.made(randn(3), ends="an attribute of a type is set")
def a_special_method_is_set():
    class Made:
        pass

    def three(self):
        return 3

    def fn(x):
        Made.__len__ = three
        return x * len(Made())

    return fn


def test_what_a_region_set_on_a_class_is_put_back():
    class Made:
        count = 5

    def fn(x):
        Made.count += 1
        Made.more = x + 1
        print(x)
        return x * 2

    torchbolt.reset()
    with pytest.raises(torchbolt.exc.TorchboltError):
        torchbolt.compile(lambda x: (fn(x), x.sum().item() > 0 and input()), fullgraph=True)(torch.ones(2))
    assert Made.count == 5 and not hasattr(Made, "more")


def test_what_others_set_meanwhile():
    class Base:
        scale = 1

    class Derived(Base):
        pass

    def fn(x, sets):
        if sets:
            Base.scale = 2
        return x * Derived.scale, x + Base.scale

    x = torch.ones(2)
    torchbolt.reset()
    fast = torchbolt.compile(fn)
    for sets, own in ((False, None), (True, None), (False, None), (False, 1), (True, 1), (False, None), (True, 2)):
        outs = []
        for each in (fast, fn):
            Base.scale = 1
            if own:
                Derived.scale = own
            elif "scale" in vars(Derived):
                del Derived.scale
            outs.append([*each(x, sets), torch.tensor(float(Base.scale))])
        assert all(map(torch.equal, *outs))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_class_attributes(row):
    row.check()
