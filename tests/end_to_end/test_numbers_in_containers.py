# tests/end_to_end/test_numbers_in_containers.py
"""Lists, tuples, deques and dicts of numbers that differ between calls: whoever goes through them, in Python or in C.

Two recordings, then every call is a hit, also where the container is written while it is gone through.
"""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import math
import operator

import pytest
import torch

import torchbolt


def losses(x):
    return [x, x * 2, x.sin()]


def weighted_sum(x, w):
    return sum(a * loss for a, loss in zip(w, losses(x), strict=False))


def zipped(x, w):
    for a, b in zip(w, losses(x), strict=False):
        x = x + a * b
    return x


def counted(x, w):
    for i, a in enumerate(w):
        x = x * a + i
    return x


def turned_round(x, w):
    for a in reversed(w):
        x = x * a + 1
    return x


def limits(x, w):
    return x * max(w) + min(w) * sum(w) + math.prod(w) - math.fsum(w)


def taken_apart(x, w):
    first, *rest = w
    return x * first + sum([*w, *rest]) + ends_of(*w)


def ends_of(*numbers):
    return numbers[0] - numbers[-1]


def chained(x, w):
    for a in itertools.chain(itertools.islice(w, 2), [1.0], w):
        x = x * a + 1
    return x


def normalised(x, w):
    total = sum(w)
    return weighted_sum(x, [a / total for a in w])


def reduced(x, w):
    return x * functools.reduce(lambda a, b: a + 2 * b, w)


def handed_on(x, w):
    return x + w[0], w, [*w], {"w": w, "copy": tuple(w)}


def mapped(x, w):
    for a in map(lambda a, b: a + b, w, [1.0, 2.0, 3.0]):
        x = x * a
    return x * sum(list(map(lambda a: a + 1, w))) + sum(a * 2 for a in w)


def mapped_by_c(x, w):
    first, *rest = map(abs, w)
    for a in map(float, w):
        x = x * a
    return x * first + sum(map(abs, w)) + ends_of(*map(float, w), *rest) + next(map(math.floor, w))


def mapped_by_c_unseen(x, w):
    """What goes through the map is C code: the numbers are read."""
    for i, a in enumerate(map(abs, w)):
        x = x * a + i
    taken = [1.0, 2.0]
    taken[1:] = map(abs, w)
    taken += map(abs, w)
    return x, taken, collections.deque(map(abs, w)), list(zip(map(abs, w), w, strict=False))


def filtered(x, w):
    for a in filter(lambda a: a > -1000, w):
        x = x * a
    return x + len(list(filter(None, w)))


def named(x, w):
    d = dict(zip("abc", w, strict=False))
    return x * d["a"] + d["b"], d, collections.OrderedDict(zip("ab", w, strict=False))


def named_in_turn(x, w):
    d = dict([("a", w[0])], b=w[1])
    d.update(zip("cd", w, strict=False), e=w[-1])
    d.update((name, a * 2) for name, a in {"f": w[0]}.items())
    d.update({"g": w[1]}.items())
    counts = collections.defaultdict(float, map(lambda name, a: (name, a + 1), "abc", w))
    counts["z"] += w[0]
    return x * d["c"] + counts["z"], d, dict(counts)


def by_functions(x, w):
    """The functions of module operator are the operations of the language."""
    products = sum(map(operator.mul, w, [1.0, 2.0, 3.0]))
    y = operator.add(operator.mul(x, operator.neg(w[0])), operator.truediv(products, 2))
    if operator.lt(w[0], -1000) or operator.not_(operator.ge(operator.getitem(w, 1), -1000)):
        return y
    return operator.iadd(y, operator.sub(w[0], w[2]))


def in_order(x, w):
    first, *_, last = sorted(w)
    return x * first + last, sorted(w)


def asked(x, w):
    if any(w) and 7.125 not in w:
        x = x * (w.count(0.125) + 1) + list(w).index(max(w))
    return x


READERS = [
    in_order,
    asked,
    weighted_sum,
    zipped,
    counted,
    turned_round,
    limits,
    taken_apart,
    chained,
    normalised,
    reduced,
    handed_on,
    mapped,
    mapped_by_c,
    filtered,
    named,
    named_in_turn,
    by_functions,
]


def put_in_order(x, w):
    w.sort()
    return x * w[0] + w[-1]


def sliced(x, w):
    for a in w[1:] + w[:1] * 2:
        x = x * a + 1
    return x


def joined(x, w):
    for a in w + [w[0]]:  # noqa: RUF005  the operator is what is tried
        x = x * a + 1
    return x


def copied(x, w):
    mine = w.copy()
    mine[0] += 1
    return x * mine[0] + list(w)[1], mine


def of_a_matrix(x, w):
    rows = [w, w[:]]
    for a, b in zip(*rows, strict=True):
        x = x * a + b
    return x


def overwritten(x, w):
    for i, a in enumerate(w):
        w[i] = a * 0.5
        x = x + w[i] - w[-1]
    return x, w


def grown(x, w):
    for a in w:
        if len(w) < 6:
            w.append(a + 1)
        x = x + a
    return x, w


def emptied(x, w):
    total = sum(w)
    while w:
        x = x * w.pop()
    w.extend([total] * 2)
    return x, w


def rescaled(x, w):
    w[:] = [a / sum(w) for a in w]
    return x * w[0], w


def moved_on(x, w):
    """The window of the last few losses."""
    w.append(sum(w) / len(w))
    w.pop(0)
    return x * sum(w), w


def grown_before(x, w):
    w.append(0.5)
    for a in w:
        x = x * a
    w[0] = sum(w)
    return x, w


def grown_behind_an_end(x, w):
    for a in w:
        x = x * a
        if len(w) < 5:
            torchbolt.graph_break()
            w.append(a * 2)
    return x, w


LISTS = [
    put_in_order,
    sliced,
    joined,
    copied,
    of_a_matrix,
    overwritten,
    grown,
    grown_before,
    emptied,
    rescaled,
    moved_on,
]


def check(fn, x, numbers, kind):
    """The recordings it took; ours and eager's come to the same, and the numbers are the caller's own."""
    mine, theirs = kind(list(numbers)), kind(list(numbers))
    objects = list(mine)
    before = torchbolt.stats()["recordings"]
    compiled = check.compiled
    want, got = fn(x, theirs), compiled(x, mine)
    torch.testing.assert_close(got, want)
    assert list(mine) == list(theirs)
    assert [type(each) for each in mine] == [type(each) for each in theirs]
    if fn in READERS:
        assert all(a is b for a, b in zip(mine, objects, strict=True))
    return torchbolt.stats()["recordings"] - before


@pytest.mark.parametrize(
    ("fn", "kind"),
    [(fn, kind) for fn in READERS for kind in (list, tuple, collections.deque)] + [(fn, list) for fn in LISTS],
    ids=lambda each: each.__name__,
)
def test_two_recordings_then_hits(fn, kind):
    torchbolt.reset()
    check.compiled = torchbolt.compile(fn)
    x = torch.randn(4, dtype=torch.float64)
    assert [check(fn, x, [0.5 + n, 1.5 * n + 1, 2.25 - n], kind) for n in range(6)] == [1, 1, 0, 0, 0, 0]
    stats = torchbolt.stats()
    assert stats["region_ends"] == 0 and stats["eager_fallbacks"] == 0, stats
    # Numbers of another class, of which only the class is another.
    assert sum(check(fn, x, [3 + n, 2.5 * n + 4, 3 + n], kind) for n in range(4)) <= 3
    # Another length: more places, whose numbers are found to differ in turn.
    assert [check(fn, x, [0.5 + n, 2.5 * n, 1.0 + n, 2.0, 3.0 * n], kind) for n in range(5)][2:] == [0, 0, 0]


def by_item(x, d):
    for name, a in d.items():
        x = x * a + len(name)
    return x


def by_key(x, d):
    for name in d:
        x = x * d[name]
    return x


def by_value(x, d):
    total = sum(d.values())
    return x * max(d.values()), {name: a / total for name, a in d.items()}


def merged(x, d):
    one, other = {**d, "z": 2.0}, {"a": 1.0} | d
    other |= {"c": 5.0}
    other.update(one)
    return x * one["a"] + other["b"] + other["c"], one, other


def as_arguments(x, d):
    return x * first_and_rest(**d) + dict(d, z=2.0)["b"] + d.copy()["c"]


def first_and_rest(a, **rest):
    return a + sum(rest.values())


def written_by_item(x, d):
    for name, a in d.items():
        d[name] = a * 0.5
    return x * d["a"], d


def written_before_by_item(x, d):
    d["a"] += 1
    d["z"] = 2.0
    for a in d.values():
        x = x * a
    d["b"] = sum(d.values())
    return x, d


def grown_by_item(x, d):
    for name, a in list(d.items()):
        d[name * 2] = a + 1
    d |= {"b": 0.25}
    return x * d["aa"] + d["b"], d


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict], ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "fn",
    [by_item, by_key, by_value, merged, as_arguments, written_by_item, written_before_by_item, grown_by_item],
    ids=lambda each: each.__name__,
)
def test_values_of_a_dict(fn, kind):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4, dtype=torch.float64)
    recordings = []
    for n in range(6):
        mine, theirs = (kind(a=0.5 + n, b=1.5 * n + 1, c=2.25 - n) for _ in range(2))
        objects, before = dict(mine), torchbolt.stats()["recordings"]
        want, got = fn(x, theirs), compiled(x, mine)
        torch.testing.assert_close(got, want)
        assert list(mine.items()) == list(theirs.items())
        if "by_item" not in fn.__name__ or fn is by_item:
            assert all(mine[name] is objects[name] for name in mine)
        recordings.append(torchbolt.stats()["recordings"] - before)
    assert recordings == [1, 1, 0, 0, 0, 0]
    mine, theirs = kind(c=1, a=2.5, b=0.5), kind(c=1, a=2.5, b=0.5)
    torch.testing.assert_close(compiled(x, mine), fn(x, theirs))  # another order, another class


def test_errors_of_pairs_are_those_of_dict():
    def fn(x, w):
        errors = []
        for pairs in ([1], zip(w, strict=True), [("a",)], [("a", 1, 2)], 5, iter([["a", 2.0], 3])):
            try:
                errors.append(dict(pairs))
            except (TypeError, ValueError) as error:
                errors.append(str(error))
        try:
            dict(zip("ab", w, strict=False), 3)
        except TypeError as error:
            errors.append(str(error))
        return x * w[0], errors

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for n in range(4):
        x, w = torch.randn(4), [0.5 + n, 1.5 * n]
        want, got = fn(x, w), compiled(x, w)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]


Weights = collections.namedtuple("Weights", "a b c")


def by_field(x, t):
    changed = t._replace(a=t.a * 2)
    return x * changed.a + changed.b, changed


def unpacked(x, t):
    for a in t:
        x = x * a
    a, _, c = t
    return x * a + c + sum(t), t


def made(x, t):
    return x * t.b, Weights._make(t), Weights(*[a + 1 for a in t]), t


@pytest.mark.parametrize("fn", [by_field, unpacked, made], ids=lambda each: each.__name__)
def test_named_tuples(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4, dtype=torch.float64)
    for n in range(6):
        t = Weights(0.5 + n, 1.5 * n + 1, 2.25 - n)
        want, got = fn(x, t), compiled(x, t)
        torch.testing.assert_close(got, want)
        assert [type(each) for each in got] == [type(each) for each in want]
        assert fn is by_field or got[-1] is t
    assert torchbolt.stats()["recompiles"] == 1 and torchbolt.stats()["region_ends"] == 0


def test_what_a_function_of_c_reads_unseen_is_read():
    torchbolt.reset()
    compiled = torchbolt.compile(mapped_by_c_unseen)
    x = torch.randn(4, dtype=torch.float64)
    for n in range(6):
        w = [0.5 + n, -1.5 * n - 1, 2.25 - n]
        torch.testing.assert_close(compiled(x, w), mapped_by_c_unseen(x, w))


def test_regions_that_end_while_a_list_is_gone_through():
    torchbolt.reset()
    check.compiled = torchbolt.compile(grown_behind_an_end)
    recordings = [check(grown_behind_an_end, torch.randn(4), [0.5 + n, 1.5 * n + 1, 2.25 - n], list) for n in range(6)]
    assert recordings[3:] == [0, 0, 0]


def test_what_is_no_number_stays_as_guarded():
    def fn(x, w):
        for a in w:
            if isinstance(a, float):
                x = x * a
            elif a is None:
                x = x + 1
            else:
                x = x + len(a)
        return x

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4)
    for w in ([None, 0.5, "ab"], [None, 1.5, "ab"], [None, 2.5, "ab"], ["c", 2.5, None], [None, 3.5, [1, 2]], [4.5]):
        torch.testing.assert_close(compiled(x, w), fn(x, w))


def test_pairs_and_nested_lists():
    def fn(x, pairs, rows):
        for a, b in pairs:
            x = x * a + len(b)
        for row in rows:
            for a in row:
                x = x * a
        return x, torch.tensor(rows)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4)
    for n in range(6):
        args = [(0.5 + n, "a"), (1.0 * n, "bc")], [[0.5 + n, 2.0], [1.0 * n, 3.5]]
        kept = copy.deepcopy(args)
        torch.testing.assert_close(compiled(x, *args), fn(x, *args))
        assert args == kept
    assert torchbolt.stats()["recompiles"] == 1


def test_a_list_that_only_grows_is_not_read():
    """Its length and its items are nothing to a region that appends to it."""

    def fn(x, history):
        history.append(x.shape[0] * 0.5)
        history += [2.0]
        return x * history[-1]

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x, mine, theirs = torch.randn(4), [], []
    for n in range(6):
        mine.insert(0, 1.5 * n)
        theirs.insert(0, 1.5 * n)
        torch.testing.assert_close(compiled(x, mine), fn(x, theirs))
        assert mine == theirs
    assert torchbolt.stats()["recompiles"] == 0


def test_order_of_a_list_that_grew():
    def fn(x, w):
        w.sort()
        return x * w[0] + sorted(w)[-1]

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x, w, recordings = torch.randn(3), [], []
    for n in range(7):
        w[:] = [2.25 - n, 0.5 + n, 1.5 * n] + [3.0 * n, -1.0 * n] * (n > 1)
        theirs, before = list(w), torchbolt.stats()["recordings"]
        torch.testing.assert_close(compiled(x, w), fn(x, theirs))
        assert w == theirs
        recordings.append(torchbolt.stats()["recordings"] - before)
    assert recordings[-3:] == [0, 0, 0]


def test_texts_of_lists():
    def fn(x, w):
        return x + 1, f"{w} and {w!r}", str(w) + repr(w), w != [0.5] and [*w, 1] == w

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3)
    for n in range(6):
        assert compiled(x, [0.5 + n, 1.5 * n, n])[1:] == fn(x, [0.5 + n, 1.5 * n, n])[1:]
    assert torchbolt.stats()["recompiles"] == 1 and torchbolt.stats()["region_ends"] == 0


def test_sums_of_what_was_there_and_what_was_put():
    def fn(x, w, n):
        w.append(n)
        return x * sum(w), x * max(w)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3)
    for n in range(9):
        mine, theirs = [1, n // 3, n % 2], [1, n // 3, n % 2]
        torch.testing.assert_close(compiled(x, mine, n), fn(x, theirs, n))


def test_items_of_a_list_that_a_slice_is_given():
    def fn(x, w, other):
        w[1:2] = other
        return x + 1

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3)
    for n in range(4):
        w = [1, 2, 3]
        compiled(x, w, [n, n + 1])
        assert w == [1, n, n + 1, 3]


TABLE = (0.5, 0.25, 2.0, 1.5, 3.0, 0.125, 7.0, 9.5)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, i: x * w[i],
        lambda x, w, i: x * w[i] ** 0.5 + (w[i - 1] if i > 0 else 1.0),
        lambda x, w, i: x * TABLE[i % 8],
        lambda x, w, i: x.new_ones(int(w[i]) + 2),
        lambda x, w, i: (x, w[i] + i, w[-1]),
    ],
)
def test_tables_read_at_a_step(fn):
    """Which number of a table it is differs from call to call."""
    torchbolt.reset()
    compiled, x, w = torchbolt.compile(fn), torch.randn(3), [4.5, 2.25, 100.0, 3.0, 7.0, 8.5, 9.5, 11.0]
    for i in (7, 6, 5, 4, 3, 2, 1, 3):
        torch.testing.assert_close(compiled(x, w, i), fn(x, w, i))
    assert torchbolt.stats()["recordings"] == 2
    w[3], w[4:] = 8.0, [2.0] * 9
    for i in (3, 4, 12, 5):
        torch.testing.assert_close(compiled(x, w, i), fn(x, w, i))


def test_which_object_a_table_holds():
    def fn(w, i):
        return w[i], w[i] is w[i], w[w.index(w[i])] is w[i]

    compiled, w = torchbolt.compile(fn), [4.5, 2.25, 1000.0, 3.0, 7.0]
    for i in (4, 3, 2, 1, 0, 2):
        got, want = compiled(w, i), fn(w, i)
        assert got == want and got[0] is want[0]


def test_one_object_in_many_places():
    """Which of them are one object is not known from their values."""

    def fn(x, w):
        total = sum(w)
        return x * total, w[0] is w[1], [a is w[0] for a in w]

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4)
    for n in range(6):
        one, other = 0.5 + n, 1000.5 + n
        for w in ([one, one, other], [one, other, other]):
            torch.testing.assert_close(compiled(x, w), fn(x, w))


def test_classes_of_tensors():
    def fn(x, w):
        ints = torch.LongTensor([int(w[0]), 2]), torch.Tensor(int(w[0] + 1), 2).shape
        return (
            torch.Tensor(w),
            torch.FloatTensor(w) + x,
            torch.DoubleTensor([w, w]) * w[0],
            torch.Tensor((1, w[1])),
            ints,
        )

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3)
    for n in range(6):
        w = [0.5 + n, 1.5 * n + 1, 2.25 - n]
        torch.testing.assert_close(compiled(x, w), fn(x, w))
    assert torchbolt.stats()["recompiles"] == 1 and torchbolt.stats()["region_ends"] == 0
