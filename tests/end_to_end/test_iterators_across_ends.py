# tests/end_to_end/test_iterators_across_ends.py
"""Iterators and callables made of C that are under way where a region ends: what follows goes on where they stood."""

from __future__ import annotations

import collections
import fractions
import functools
import itertools
import operator

import pytest
import torch
from countdown import Countdown

import torchbolt


class Items:
    """A sequence by __getitem__ alone."""

    def __getitem__(self, i):
        return [1, 2, 3][i]


class Doubled:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items * 2)


ITERATORS = {
    "count": lambda: (i for i, _ in zip(itertools.count(2, 3), range(3))),
    "islice of count": lambda: itertools.islice(itertools.count(2, 3), 4),
    "cycle": lambda: itertools.islice(itertools.cycle([1, 2, 3]), 5),
    "chain": lambda: itertools.chain([1, 2], (3, 4)),
    "chain.from_iterable": lambda: itertools.chain.from_iterable([[1, 2], (3, 4)]),
    "chain of iterables in Python": lambda: itertools.chain(Doubled([1, 2]), Doubled([3])),
    "repeat": lambda: itertools.repeat(2, 3),
    "product": lambda: (a * b for a, b in itertools.product([1, 2], [3, 4])),
    "map of product": lambda: map(sum, itertools.product([1, 2], [3, 4])),
    "permutations": lambda: map(sum, itertools.permutations([1, 2, 3], 2)),
    "combinations": lambda: map(sum, itertools.combinations([1, 2, 3], 2)),
    "with replacement": lambda: map(sum, itertools.combinations_with_replacement([1, 2, 3], 2)),
    "accumulate": lambda: itertools.accumulate([1, 2, 3]),
    "accumulate mul": lambda: itertools.accumulate([1, 2, 3], operator.mul),
    "accumulate lambda": lambda: itertools.accumulate([1, 2, 3], lambda a, b: a * b + 1),
    "accumulate from": lambda: itertools.accumulate([1, 2], initial=4),
    "starmap": lambda: itertools.starmap(pow, [(1, 2), (2, 3)]),
    "starmap lambda": lambda: itertools.starmap(lambda a, b: a + b, [(1, 2), (2, 3)]),
    "takewhile": lambda: itertools.takewhile(lambda v: v < 3, [1, 2, 3, 4]),
    "dropwhile": lambda: itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 4]),
    "filterfalse": lambda: itertools.filterfalse(lambda v: v < 3, [1, 2, 3, 4]),
    "compress": lambda: itertools.compress([1, 2, 3], [1, 0, 1]),
    "zip_longest": lambda: map(sum, itertools.zip_longest([1, 2, 3], [4], fillvalue=1)),
    "islice": lambda: itertools.islice([1, 2, 3, 4, 5], 1, None, 2),
    "groupby keys": lambda: (k for k, _ in itertools.groupby([1, 1, 2])),
    "groupby groups": lambda: (sum(g) for _, g in itertools.groupby([1, 1, 2])),
    "tee": lambda: itertools.tee([1, 2, 3])[0],
    "reversed": lambda: reversed([1, 2, 3]),
    "reversed range": lambda: reversed(range(3)),
    "zip": lambda: map(sum, zip([1, 2], [3, 4])),
    "enumerate": lambda: map(sum, enumerate([1, 2])),
    "filter": lambda: filter(None, [0, 1, 2]),
    "dict": lambda: iter({1: 2, 3: 4}),
    "set": lambda: iter({1, 2}),
    "bytes": lambda: iter(b"ab"),
    "until a sentinel": lambda: iter(functools.partial(next, iter([1, 2, 3, 0, 5])), 0),
    "deque": lambda: iter(collections.deque([1, 2])),
    "reversed deque": lambda: reversed(collections.deque([1, 2])),
    "Counter": lambda: iter(collections.Counter("aab").values()),
    "ChainMap": lambda: iter(collections.ChainMap({1: 2}, {3: 4})),
    "OrderedDict": lambda: iter(collections.OrderedDict([(1, 2)]).values()),
    "by __getitem__": lambda: iter(Items()),
}
CALLABLES = {
    "itemgetter": lambda: operator.itemgetter(0),
    "itemgetter of a slice": lambda: operator.itemgetter(slice(0, 2)),
    "attrgetter": lambda: operator.attrgetter("mT.shape"),
    "methodcaller": lambda: operator.methodcaller("add", 1),
    "methodcaller with a keyword": lambda: operator.methodcaller("add", 1, alpha=2),
    "partial": lambda: functools.partial(torch.add, other=2),
    "method of a list": lambda: [1, 2].index and (lambda y: y * 2),
    "torch's own": lambda: torch.nn.functional.relu,
}


def settles(function, *args, after=2):
    """Eager's results, and after so many calls nothing is compiled any more."""
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    with torch.no_grad():
        for i in range(after + 2):
            if i == after:
                before = torchbolt.stats()["recordings"]
            want, got = function(*args), compiled(*args)
            assert type(want) is type(got)
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want)
            else:
                assert got == want
    assert torchbolt.stats()["recordings"] == before
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_goes_on(name):
    make = ITERATORS[name]

    def program(x):
        total = x
        for i in make():
            total = total + x * i
            if total.sum() > 1e6:
                break
        return total

    # Where C runs Python on the way (Counter), the first recordings are for finding out.
    settles(program, torch.rand(3) + 1, after=4)


@pytest.mark.parametrize("name", CALLABLES)
def test_a_callable_is_made_again(name):
    make = CALLABLES[name]

    def program(x):
        call, y = make(), x * 2
        if y.sum() > 1e6:
            return x
        return call(y)

    settles(program, torch.rand(2, 3) + 1)


def test_a_context_of_cpp_is_never_made_half():
    """Its state is C++'s: an instance without it crashed the process."""

    def program(x):
        y = x + 1
        with torch._C._DisableFuncTorch():
            z = y * 2
        return z

    settles(program, torch.rand(3))


def test_a_method_of_a_native_class_crosses_an_end():
    """What ends the region is a static method of a class of C."""
    settles(lambda x: torch.unique_consecutive(x) * 2, torch.tensor([1.0, 1.0, 2.0]))


def test_c_loops_before_an_end():
    """Nothing is computed before the end, and a recording takes `map` apart where a plain run does not: both come to it."""

    def program(x):
        (x,) = map(lambda t: t, [x])
        return list(map(lambda t: t * 2, [torch.nonzero(x)]))[0]

    settles(program, torch.tensor([1.0, 0.0, 2.0]), after=3)


def test_a_run_without_operators_after_an_end_is_not_recorded_again():
    """Neither are guards put on what merely passes through; where there is something to compile it is."""

    def program(x, n):
        if x.sum() < 0:
            return x
        total = 0
        for i in range(n):
            total += i
        return x * 2 if n > 4 else total

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    x = torch.ones(3)

    def recorded(n):
        before = torchbolt.stats()["recordings"]
        want, got = program(x, n), compiled(x, n)
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
        return torchbolt.stats()["recordings"] - before

    assert [recorded(n) for n in (1, 2)] == [2, 1]  # n was taken for a constant of the first region
    assert [recorded(n) for n in (3, 1, 0)] == [0, 0, 0]
    # That run meets an operator: the next is recorded, and compiled.
    assert [recorded(n) for n in (5, 5, 5)] == [0, 1, 0]
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_iterators_of_which_one_is_used_up():
    """zip_longest keeps them in a tuple that has a gap then."""

    def fn(x):
        both = itertools.zip_longest(Countdown(1, 1), Countdown(4, 2), fillvalue=0)
        first = [next(both), next(both)]
        x = x * 2
        torchbolt.graph_break()
        return x + 1, first, list(both)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        got, want = compiled(torch.ones(2)), fn(torch.ones(2))
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


class Key:
    def __init__(self, name):
        self.name = name


def test_taking_the_item_that_ends_the_region():
    """A dict with objects as keys is not read in a region, so it ends before the item is taken: once, by the interpreter."""
    table = {Key("a"): 1, Key("b"): 2}

    def first(x):
        key, value = next(iter(table.items()))
        return x * value, key.name

    def all_of_them(x):
        return [(x * value, key.name) for key, value in table.items()]

    x = torch.ones(2)
    for fn in (first, all_of_them):
        compiled = torchbolt.compile(fn)
        assert [repr(compiled(x)) for _ in range(3)] == [repr(fn(x))] * 3


def counted(x, counter):
    return x * next(counter)


def counted_twice(x, counter):
    first = next(counter)
    return x * first + next(counter), first, next(counter) - first


def counted_in_parity(x, counter):
    return x + 1 if next(counter) % 2 else x * 2


def counted_in_a_loop(x, counter):
    for i in counter:
        x = x + i
        if i % 4 == 3:
            return x


def counted_around_an_end(x, counter):
    x = x * next(counter)
    torchbolt.graph_break()
    return x + next(counter)


@pytest.mark.parametrize("make", [itertools.count, lambda: itertools.count(0.5, -0.25), lambda: itertools.count(7, 3)])
@pytest.mark.parametrize(
    "fn, records", [(counted, "1......."), (counted_twice, "1......."), (counted_around_an_end, "1.......")]
)
def test_a_counter_from_outside(fn, records, make):
    assert check_counter(fn, make(), make()) == records


@pytest.mark.parametrize("fn, records", [(counted_in_parity, "11......"), (counted_in_a_loop, "1.......")])
def test_what_a_counter_decides(fn, records):
    assert check_counter(fn, itertools.count(), itertools.count()) == records


def check_counter(fn, mine, eagers):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    records = ""
    for _ in range(8):
        before = torchbolt.stats()["recordings"]
        torch.testing.assert_close(compiled(torch.ones(2), mine), fn(torch.ones(2), eagers))
        records += "1" if torchbolt.stats()["recordings"] > before else "."
        assert repr(mine) == repr(eagers)
    return records


def test_other_counters():
    """Whose numbers do not fit, or are none."""
    for make in (
        lambda: itertools.count(2**63 - 3),
        lambda: itertools.count(2**70),
        lambda: itertools.count(2, -1),
        lambda: itertools.count(fractions.Fraction(1, 2)),
        lambda: itertools.count(True),
        itertools.count,
    ):
        mine, eagers = make(), make()
        compiled = torchbolt.compile(lambda x, counter: (x + 1, next(counter)))
        for other in (False, True):
            if other:  # another counter in the place of the first
                mine, eagers = itertools.count(5, 2), itertools.count(5, 2)
            for _ in range(5):
                assert compiled(torch.ones(2), mine)[1] == next(eagers)
                assert repr(mine) == repr(eagers)
