# tests/observe/test_effects.py
"""What a run did to objects from outside is done again by its recipe; what it made is made again."""

import collections
import functools

import pytest
import torch
from helper import Seen

import torchbolt

Pair = collections.namedtuple("Pair", "left right")


class Counter:
    def __init__(self):
        self.last = None
        self.seen = []


class Slotted:
    __slots__ = ("value",)


def test_attribute_write():
    def run(c):
        c.last = 5
        return c.last

    seen = Seen(run, Counter()).sound()
    fresh = Counter()
    assert seen.rebuild(fresh) == 5
    assert fresh.last == 5


def test_append_needs_no_length():
    def run(c):
        c.seen.append("x")

    seen = Seen(run, Counter()).sound()
    fresh = Counter()
    fresh.seen += [1, 2, 3]
    assert seen.rebuild(fresh) is None
    assert fresh.seen == [1, 2, 3, "x"]


def test_insert_replaces_the_contents():
    def run(items):
        items.insert(0, 9)
        return len(items)

    seen = Seen(run, [1, 2]).sound()
    items = [1, 2]
    assert seen.rebuild(items) == 3
    assert items == [9, 1, 2]
    assert not seen.holds([1])


def test_dict_writes_and_deletes():
    def run(table):
        table["n"] = table.pop("a") + 1
        del table["b"]

    seen = Seen(run, {"a": 1, "b": 2, "c": 3}).sound()
    table = {"a": 1, "b": 7, "c": 8}
    assert not seen.holds(table)
    table["b"] = 2
    seen.rebuild(table)
    assert table == {"c": 8, "n": 2}


def test_slots_and_cells():
    n = 0

    def run(s):
        nonlocal n
        n = n + 1
        s.value = n

    seen = Seen(run, Slotted()).sound()
    assert n == 1
    assert not seen.holds(Slotted()), "n was read as 0"
    n = 0
    fresh = Slotted()
    seen.rebuild(fresh)
    assert n == 1 and fresh.value == 1


def test_written_then_read_is_not_guarded():
    def run(c):
        c.last = 3
        return c.last + 1

    seen = Seen(run, Counter()).sound()
    other = Counter()
    other.last = "something else"
    assert seen.holds(other)


def test_results_are_rebuilt_with_their_classes_and_identities():
    def run(x):
        shared = [x, x + 1]
        od = collections.OrderedDict(p=shared, q=(shared, {1, 2}))
        return Pair(shared, {"od": od, "s": slice(1, 2), "size": x.shape, "d": collections.deque([1], maxlen=3)})

    x = torch.ones(2)
    seen = Seen(run, x).sound()
    y = torch.ones(2)
    made = seen.rebuild(y)
    assert type(made) is Pair
    assert made.left[0] is y
    assert type(made.right["od"]) is collections.OrderedDict
    assert made.right["od"]["p"] is made.left and made.right["od"]["q"][0] is made.left
    assert made.right["size"] == torch.Size([2]) and made.right["d"].maxlen == 3


def test_cycles_close():
    def run():
        items = [1]
        items.append(items)
        return items

    made = Seen(run).sound().rebuild()
    assert made[1] is made


def test_closures_and_partials():
    def run(x):
        def inner(y):
            return x + y

        return inner, functools.partial(inner, 2)

    inner, partial = Seen(run, 3).sound().rebuild(3)
    assert inner(4) == 7 and partial() == 5


def test_user_objects():
    def run():
        c = Counter()
        c.last = (1, c)
        return c

    made = Seen(run).sound().rebuild()
    assert type(made) is Counter and made.last[1] is made and made.seen == []


def test_a_write_of_what_was_there_is_repeated():
    """Without a guard: a later call may find something else there."""
    total = 3

    def run(table, c, slotted):
        nonlocal total
        table["a"] = 1
        c.last = None
        slotted.value = 2
        total = 3
        return table["a"], c.last, slotted.value, total

    slotted = Slotted()
    slotted.value = 2
    seen = Seen(run, {"a": 1, "b": 2}, Counter(), slotted).sound()
    table, fresh, other = {"a": 7, "b": 2}, Counter(), Slotted()
    fresh.last, other.value, total = 5, 6, 8
    assert seen.rebuild(table, fresh, other) == (1, None, 2, 3)
    assert (table, fresh.last, other.value, total) == ({"a": 1, "b": 2}, None, 2, 3)


def test_a_set_that_resizes_and_gains_nothing_may_have_another_order():
    def run(numbers):
        numbers |= {8}

    numbers, wanted = set([8, 1, 16, 24]), set([8, 1, 16, 24])
    seen = Seen(run, numbers).sound()
    wanted |= {8}
    assert list(numbers) == list(wanted) == [16, 1, 8, 24]
    fresh = set([8, 1, 16, 24])
    seen.rebuild(fresh)
    assert list(fresh) == list(wanted)


def test_an_item_put_back_comes_last():
    def run(table):
        table["a"] = table.pop("a")

    seen = Seen(run, {"b": 2, "a": 1}).sound()
    table = {"a": 1, "b": 2, "c": 3}
    seen.rebuild(table)
    assert list(table) == ["b", "c", "a"]


def test_an_item_that_comes_and_goes_leaves_none():
    def run(table):
        table["new"] = 1
        del table["new"]

    seen = Seen(run, {}).sound()
    table = {"new": 5}
    seen.rebuild(table)
    assert table == {}


def test_a_cleared_dict_is_filled_in_the_order_of_the_run():
    def run(table):
        table.clear()
        table.update(b=2, a=1)

    seen = Seen(run, {"a": 1, "b": 2}).sound()
    table = {"a": 1, "b": 2}
    seen.rebuild(table)
    assert list(table) == ["b", "a"]


def test_the_length_of_a_written_dict_rests_on_what_was_in_it():
    def run(table):
        table["a"] = 1
        return len(table)

    seen = Seen(run, {"b": 2}).sound()
    assert seen.holds({"b": 5})
    assert not seen.holds({"a": 5})


def test_what_is_written_is_nothing_else():
    def run(a, b):
        a.last = 1
        b.last = 2
        return a.last

    seen = Seen(run, Counter(), Counter()).sound()
    one = Counter()
    assert seen.holds(Counter(), Counter())
    assert not seen.holds(one, one)


def test_a_list_that_is_read_is_not_the_one_that_is_written():
    def run(a, b):
        a.append(1)
        return len(b)

    seen = Seen(run, [], []).sound()
    one = []
    assert seen.holds([], [])
    assert not seen.holds(one, one)


def test_objects_told_apart_stay_apart():
    def of_a_set(a, b):
        return len({a, b})

    def among_keys(a, b):
        return b in {a: 1}

    def in_a_list(a, b):
        return b in [a]

    def by_id(a, b):
        return len({id(a), id(b)})

    one, two = Counter(), Counter()
    for run in (of_a_set, among_keys, in_a_list, by_id):
        seen = Seen(run, Counter(), Counter()).sound()
        assert seen.holds(one, two)
        assert not seen.holds(one, one), run.__name__


def test_an_id_that_is_kept_is_taken_again():
    def run(memo, c):
        memo[id(c)] = c.last
        return id(c)

    seen = Seen(run, {}, Counter()).sound()
    memo, fresh = {}, Counter()
    assert seen.rebuild(memo, fresh) == id(fresh)
    assert memo == {id(fresh): None}


class Asked:
    """Every way of asking a container is in Python, and answers something else."""

    asked = 0

    def __getitem__(self, key):
        Asked.asked += 1
        return super().__getitem__(key)

    def __iter__(self):
        Asked.asked += 1
        return iter(["other"])

    def __len__(self):
        Asked.asked += 1
        return 0

    def __eq__(self, other):
        Asked.asked += 1
        return True

    __hash__ = None


class AskedOrdered(Asked, collections.OrderedDict): ...


class AskedDict(Asked, dict): ...


class AskedList(Asked, list): ...


class AskedSet(Asked, set): ...


class AskedDeque(Asked, collections.deque): ...


WRITES = [
    (AskedOrdered, {"q": 1}, lambda x, c: dict.__setitem__(c, "new", x)),
    (AskedOrdered, {"q": 1, "r": 2}, lambda x, c: c.move_to_end("q")),
    (AskedDict, {"q": 1}, lambda x, c: c.update(new=x)),
    (AskedList, [1, 2], lambda x, c: c.append(3)),
    (AskedList, [1, 2], lambda x, c: c.insert(0, 3)),
    (AskedSet, {1, 2}, lambda x, c: c.add(3)),
    (AskedDeque, [1, 2], lambda x, c: c.append(3)),
]


@pytest.mark.parametrize("cls, items, write", WRITES)
def test_a_container_is_written_without_asking_it(cls, items, write):
    native = next(base for base in cls.__mro__ if base.__module__ in ("builtins", "collections"))

    def fn(x, c):
        write(x, c)
        return x * 2

    def left(f):
        Asked.asked = 0
        c = cls(items)
        before = Asked.asked
        f(torch.ones(1), c)
        asked = Asked.asked - before
        view = native.keys(c) if isinstance(c, dict) else native.__iter__(c)
        return asked, repr(list(view))

    compiled = torchbolt.compile(fn)
    for _ in range(3):
        assert left(compiled) == left(fn)
