# tests/observe/test_nested_contents.py
"""What lies inside of what C code is given: functions that compare, add, test or show items see all of it."""

from __future__ import annotations

import collections
import copy
import datetime
import functools
import heapq
import itertools
import operator
import types
from decimal import Decimal

import pytest
import torch

import torchbolt

LISTS = ([[3], [2]], [[0], [2]], [[5], [6]], [[3], [2]])
PAIRS = ([["a", 1]], [["a", 2]], [["b", 2]])
DECIMALS = tuple([Decimal(a), Decimal(b)] for a, b in ((1, 2), (2, 1), (3, 1)))
SPANS = tuple([datetime.timedelta(a), datetime.timedelta(b)] for a, b in ((1, 2), (2, 1), (3, 1)))
OBJECTS = tuple(types.SimpleNamespace(v=v) for v in (1, 2, 3))
GROUPS = (ExceptionGroup("g", [ValueError()]), ExceptionGroup("g", [TypeError()]))
ERRORS = ([ValueError()], [TypeError()], [ValueError(), ValueError()])


def updated(pairs):
    made = {}
    made |= pairs
    return made


def sorted_copy(lists):
    made = list(lists)
    made.sort()
    return made


def sorted_in_place(lists):
    lists.sort()
    return lists


def told_apart(group):
    try:
        raise group
    except* ValueError:
        kind = "V"
    except* TypeError:
        kind = "T"
    return kind


def grouped(errors):
    return told_apart(ExceptionGroup("g", errors))


PROGRAMS = {
    "max": (lambda v: max(v), LISTS),
    "min": (lambda v: min(v), LISTS),
    "max of arguments": (lambda v: max(*v), LISTS),
    "max of two": (lambda v: max(v[0], v[1]), LISTS),
    "max by sum": (lambda v: max(v, key=sum), LISTS),
    "max of pairs": (lambda v: max(zip(v, v, strict=True)), LISTS),
    "sorted": (lambda v: sorted(v), LISTS),
    "sorted by length": (lambda v: sorted(v, key=len), LISTS),
    "sorted pairs": (lambda v: sorted(enumerate(v), reverse=True), LISTS),
    "sorted values": (lambda v: sorted({"a": v[0], "b": v[1]}.values()), LISTS),
    "max of objects of C's": (lambda v: max(v), SPANS),
    "sorted objects of C's": (lambda v: sorted(v), DECIMALS),
    "objects of C's sorted in a list": (sorted_copy, DECIMALS),
    "less, of objects of C's": (lambda v: (v[0], 1) < (v[1], 1), DECIMALS),
    "sum": (lambda v: sum(v, []), LISTS),
    "vars": (lambda v: vars(v)["v"], OBJECTS),
    "sum of sums": (lambda v: sum(map(sum, v)), LISTS),
    "display of sums": (lambda v: [*map(sum, v)], LISTS),
    "next of sums": (lambda v: next(map(sum, v)), LISTS),
    "arguments of sums": (lambda v: (lambda *all_: all_)(*map(sum, v)), LISTS),
    "any": (lambda v: any(map(any, v)), LISTS),
    "all": (lambda v: all(map(all, v)), LISTS),
    "index": (lambda v: [*v, [2]].index([2]), LISTS),
    "count": (lambda v: v.count([2]), LISTS),
    "deque's count": (lambda v: collections.deque(v).count([2]), LISTS),
    "in": (lambda v: [2] in v, LISTS),
    "less": (lambda v: v < [[2]], LISTS),
    "reduce": (lambda v: functools.reduce(operator.add, v), LISTS),
    "accumulate": (lambda v: list(itertools.accumulate(v)), LISTS),
    "filterfalse": (lambda v: list(itertools.filterfalse(sum, v)), LISTS),
    "groupby": (lambda v: [k for k, _ in itertools.groupby(v)], LISTS),
    "compress": (lambda v: list(itertools.compress([1, 2], [each[0] for each in v])), LISTS),
    "nsmallest": (lambda v: heapq.nsmallest(1, v), LISTS),
    "heapify": (lambda v: (heapq.heapify(v), v), LISTS),
    "heappushpop": (lambda v: (heapq.heappushpop(v, [4]), v), LISTS),
    "tuples": (lambda v: list(map(tuple, v)), LISTS),
    "Counter": (lambda v: collections.Counter(map(tuple, v)), LISTS),
    "sort": (sorted_copy, LISTS),
    "sort in place": (sorted_in_place, LISTS),
    "%s": (lambda v: "%s" % v, LISTS),
    "%s in a tuple": (lambda v: "%s %s" % (v, 1), LISTS),
    "%(a)s": (lambda v: "%(a)s" % {"a": v}, LISTS),
    "format": (lambda v: "{}".format(v), LISTS),
    "format of an attribute": (lambda v: "{0.v}".format(v), OBJECTS),
    "format of an attribute by name": (lambda v: "{a.v:{b}}".format(a=v, b=3), OBJECTS),
    "dict": (lambda v: dict(v), PAIRS),
    "OrderedDict": (lambda v: collections.OrderedDict(v), PAIRS),
    "defaultdict": (lambda v: collections.defaultdict(int, v), PAIRS),
    "update": (lambda v: (lambda made: (made.update(v), made))({}), PAIRS),
    "|=": (updated, PAIRS),
    "except*": (told_apart, GROUPS),
    "except* of a new group": (grouped, ERRORS),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_inside_is_guarded(name):
    inner, inputs = PROGRAMS[name]

    def program(x, value):
        return x + 1, inner(value)

    x = torch.ones(1)
    compiled = torchbolt.compile(program)
    for _ in range(2):
        for value in inputs:
            want = repr(program(x, copy.deepcopy(value)))
            assert repr(compiled(x, copy.deepcopy(value))) == want


def test_the_same_list_with_other_insides():
    lists = [[3], [2]]
    compiled = torchbolt.compile(lambda x: (x + 1, max(lists)))
    x = torch.ones(1)
    assert compiled(x)[1] == [3]
    lists[1][0] = 4
    assert compiled(x)[1] == [4]
