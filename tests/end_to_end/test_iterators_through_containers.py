# tests/end_to_end/test_iterators_through_containers.py
"""Iterators through dicts, sets and deques that live across the end of a region.

What is written to the container behind that end is given by the iterator, or noticed by it, as in eager.
"""

from __future__ import annotations

import collections

import pytest
import torch

import torchbolt

ENDS = torchbolt.graph_break


def begun(x, iterator):
    """A region ends when one item has been taken."""
    first, x = next(iterator), x * 2
    ENDS()
    return x, first


def grown(x, items, make, add):
    container = make(items)
    iterator = iter(container)
    x, first = begun(x, iterator)
    add(container, 100)
    return x + 1, first, next(iterator)


def left(x, items, make, add):
    container = make(items)
    iterator = iter(container)
    x, first = begun(x, iterator)
    rest = list(iterator)
    add(container, 100)
    return x + len(rest), rest, list(container), list(iterator)


def loop(x, items, make, add):
    container = make(items)
    for item in container:
        x = x * item
        if item == 2:
            ENDS()
    add(container, 100)
    return x + 1, list(container)


def numbered(x, items, make, add):
    container = make(items)
    iterator = enumerate(container)
    x, first = begun(x, iterator)
    add(container, 100)
    return x + 1, first, next(iterator)


def in_generator(x, items, make, add):
    container = make(items)
    iterator = (2 * item for item in container)
    x, first = begun(x, iterator)
    add(container, 100)
    return x + 1, first, next(iterator)


def unfinished(x, items, make, add):
    """Written to before the end, noticed behind it."""
    container = make(items)
    iterator = iter(container)
    x = x * next(iterator)
    add(container, 100)
    ENDS()
    return x + 1, next(iterator)


def with_gaps(x, items, make, add):
    container = make([*items, *range(100, 108)])
    for item in range(100, 108):
        container.remove(item) if hasattr(container, "remove") else container.pop(item)
    add(container, 64)
    add(container, 0)
    iterator = iter(container)
    x, first = begun(x, iterator)
    return x + 1, first, list(iterator), list(container)


OUTSIDE = {}


def outside(x, items, make, add):
    container = OUTSIDE[make]
    container.clear()
    for item in items:
        add(container, item)
    iterator = iter(container)
    x, first = begun(x, iterator)
    return x + 1, first, list(iterator)


MAKES = {
    "dict": (dict.fromkeys, lambda d, item: d.__setitem__(item, 0)),
    "odict": (collections.OrderedDict.fromkeys, lambda d, item: d.__setitem__(item, 0)),
    "counter": (collections.Counter, lambda d, item: d.__setitem__(item, 0)),
    "set": (set, lambda s, item: s.add(item)),
    "deque": (collections.deque, lambda d, item: d.append(item)),
}


def outcome(function, *args):
    try:
        return function(*args)
    except RuntimeError as error:
        return type(error), str(error)


def same_each_call(function, *args, items=([1, 2, 3, 4],) * 3 + ([1, 2, 5, 4], [1, 2], [1, 2, 3, 4])):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for each in items:
        x = torch.randn(3)
        assert str(outcome(compiled, x, each, *args)) == str(outcome(function, x, each, *args))
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0
    return stats


@pytest.mark.parametrize("kind", MAKES)
@pytest.mark.parametrize(
    "function",
    [grown, left, loop, numbered, in_generator, unfinished, with_gaps, outside],
    ids=lambda f: f.__name__,
)
def test_what_is_written_behind_the_end_is_noticed(function, kind):
    make, add = MAKES[kind]
    OUTSIDE[make] = make([])
    same_each_call(function, make, add)


def values(d):
    return d.values()


def pairs(d):
    return d.items()


def keys_backwards(d):
    return reversed(d)


def values_backwards(d):
    return reversed(d.values())


def pairs_backwards(d):
    return reversed(d.items())


def pairs_of_both(d):
    return zip(d, d.values())


def names_of_values(d):
    return map(str, d.values())


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.Counter])
@pytest.mark.parametrize(
    "view",
    [values, pairs, keys_backwards, values_backwards, pairs_backwards, pairs_of_both, names_of_values],
    ids=lambda f: f.__name__,
)
def test_new_values_of_a_dict_are_given(view, kind):
    def run(x, items):
        parts = kind({item: item for item in items})
        parts.pop(2)
        iterator = iter(view(parts))
        x, first = begun(x, iterator)
        for item in parts:
            parts[item] = 7
        return x + 1, first, list(iterator), list(iterator)

    same_each_call(run)


def test_a_deque_backwards():
    def run(x, items):
        queue = collections.deque(items)
        iterator = reversed(queue)
        x, first = begun(x, iterator)
        queue[0] = 7
        return x + 1, first, list(iterator)

    same_each_call(run)


def test_a_loop_over_a_set_of_tensors_gives_each_once():
    def run(x, items):
        total = x
        for each in {x * item for item in items}:
            total = total + each
            ENDS()
        return total.sum().round(decimals=2)

    same_each_call(run, items=[[1, 2, 3, 4]] * 4)


def test_a_set_of_tensors_that_is_kept():
    def run(x, items):
        parts = {x * item for item in items}
        iterator = iter(parts)
        x, total = begun(x, iterator)
        for each in iterator:
            total = total + each
        parts.clear()
        return total.sum().round(decimals=2), list(iterator)

    same_each_call(run, items=[[1, 2, 3, 4]] * 4)


@pytest.mark.parametrize("kind", [dict.fromkeys, collections.OrderedDict.fromkeys, collections.deque, set])
def test_what_is_left_is_one_region(kind):
    def run(x, items):
        iterator = iter(kind(items))
        x, first = begun(x, iterator)
        for item in iterator:
            x = x * item
        return x + first

    stats = same_each_call(run, items=[[1, 2, 3, 4]] * 4)
    assert stats["regions"] == 2 and stats["region_ends"] == 1


def test_a_list_that_grows_behind_its_loop():
    def run(x, items):
        items = list(items)
        iterator = iter(items)
        x, first = begun(x, iterator)
        for item in iterator:
            x = x * item
        items.append(first)
        return x, list(iterator), items

    same_each_call(run, items=[[1, 2, 3, 4]] * 4)


def looped(x, parts, view):
    for item in view:
        x = x + len(str(item))
    return x


def in_c(x, parts, view):
    return x + len(view), list(view), sorted(view), ("a" in view, 2 in view)


def written(x, parts, view):
    parts["c"] = parts["a"] = 5
    for item in view:
        x = x + len(str(item))
    return x, list(view)


@pytest.mark.parametrize("function", [looped, in_c, written], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("method", ["keys", "values", "items"])
def test_views_of_a_dict_from_outside(function, kind, method):
    def behind_an_end(x, parts):
        view = getattr(parts, method)()
        x = x * 2
        ENDS()
        return function(x, parts, view)

    torchbolt.reset()
    compiled = torchbolt.compile(behind_an_end)
    for values in [(1, 2), (1, 2), (1, 3), (1, 2)]:
        x, mine, theirs = torch.randn(3), kind(zip("ab", values)), kind(zip("ab", values))
        assert str((compiled(x, mine), mine)) == str((behind_an_end(x, theirs), theirs))
    assert list(torchbolt.stats()["break_reasons"]) == ["graph_break() is called"]


def test_a_view_among_the_arguments():
    torchbolt.reset()
    compiled = torchbolt.compile(looped)
    for parts in [{"a": 1}, {"a": 2}, {"a": 11}, {"a": 11, "b": 1}, {"a": 1}]:
        for view in [parts.keys(), parts.values(), parts.items()]:
            x = torch.randn(3)
            assert torch.equal(compiled(x, None, view), looped(x, None, view))
    assert torchbolt.stats()["region_ends"] == 0


WRITTEN = {
    "dict": (lambda: {0: 1, 1: 2}, lambda d: d.update({5: 6})),
    "set": (lambda: {1, 2}, lambda s: s.add(7)),
    "deque": (lambda: collections.deque([1, 2]), lambda q: q.append(3)),
    "OrderedDict": (lambda: collections.OrderedDict(a=1), lambda d: d.update(b=2)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_error_of_an_iterator_that_the_program_handles(name):
    """What an iterator from outside goes through was written to before the call: the region goes on as the program does."""
    make, write = WRITTEN[name]

    def fn(x, iterator):
        try:
            return x * 2, next(iterator, None)
        except RuntimeError as error:
            return x * 3, str(error)

    def outcome(call, is_written):
        container = make()
        iterator = iter(container)
        if is_written:
            write(container)
        return call(torch.ones(2), iterator), call(torch.ones(2), iterator)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for is_written in (True, True, False, True, False):
        assert repr(outcome(compiled, is_written)) == repr(outcome(fn, is_written))
