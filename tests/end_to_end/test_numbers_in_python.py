# tests/end_to_end/test_numbers_in_python.py
"""Numbers that differ between calls, where Python itself goes by them: each call gets eager's result.

The tensor functions are those of test_symbolic_numbers.py; here a number decides which items a slice takes, how long a
loop is, what a text says. What was recorded for one number must not be given for another.
"""

import bisect
import collections
import copy
import dataclasses
import functools
import itertools
import types

import pytest
import torch

import torchbolt

ITEMS = [torch.full((2,), float(i)) for i in range(6)]
TEXT = "abcdefgh"


class Holder:
    def __init__(self, part):
        self.part = part

    def __repr__(self):
        return f"Holder({self.part})"


def delete(x, n):
    items = list(range(8))
    del items[:n]
    return x + len(items)


def assign(x, n):
    items = list(range(8))
    items[n:] = [1]
    return x + sum(items)


def across_an_end(x, n):
    parts = [slice(n, None)]
    if x.sum() > 100:
        return x
    return ITEMS[parts[0]]


def held_across_an_end(x, n):
    holder = Holder(slice(None, n))
    torchbolt.graph_break()
    return sum(range(10)[holder.part]) + x


def a_loop(x, n):
    for i in range(n):
        x = x * 2 + i
    return x


def a_dict(x, n):
    table = {i: i * i for i in range(8)}
    table.pop(n)
    return x + sum(table.values()), n in table, table.get(n + 1)


def nested(x, n):
    return [(slice(0, (n)), {"n": (n, [n])})], x


def counted(x, n):
    return x + [1, 2, 1, n, 1].count(1), (1, 2, 3, 4, 5, 6, 0).index(n)


def check(fn, make, calls):
    """fn(make(), *numbers) equals eager's result, strides and all, for every call's numbers."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn, recompile_limit=32)
    with torch.no_grad():
        for numbers in calls:
            got, want = compiled(make(), *numbers), fn(make(), *numbers)
            assert repr(got) == repr(want), numbers
            if isinstance(want, torch.Tensor):
                assert got.stride() == want.stride()
    assert torchbolt.stats()["eager_fallbacks"] == 0


FUNCTIONS = {
    "list": lambda x, n: sum(ITEMS[:n], x),
    "list from its end": lambda x, n: ITEMS[-n:][0] + x,
    "text": lambda x, n: x * len(TEXT[n:]),
    "tuple": lambda x, n: x + sum((1, 2, 3, 4, 5)[n:]),
    "range": lambda x, n: x + sum(range(10)[slice(None, n)]),
    "bytes": lambda x, n: x + sum(b"abcdef"[:n]),
    "step": lambda x, n: x + sum(list(range(20))[:: n + 1]),
    "bounds": lambda x, n: (x + slice(0, n).stop, slice(0, n, 2).indices(5)),
    "returned": lambda x, n: (x, slice(n, None)),
    "returned in a dict": lambda x, n: (x, {"a": [slice(0, n)]}),
    "returned in an object": lambda x, n: (x, Holder(slice(n, n + 1))),
    "frozenset": lambda x, n: (x, frozenset((n, 7)), {n, 8}),
    "range returned": lambda x, n: (x, range(n), list(range(n, 6))),
    "reversed": lambda x, n: (x, list(reversed(range(n))), sorted([3, n, 1])),
    "text of it": lambda x, n: (x, f"{n:03d}", str(n), "%d" % n, repr([n])),
    "repeated": lambda x, n: (x, [0] * n, "ab" * n, (1,) * n),
    "compared": lambda x, n: x * 2 if n > 2 else x,
    "chosen": lambda x, n: x + (10, 20, 30, 40, 50, 60)[n],
    "hash": lambda x, n: x + hash((n, 2)) % 7,
    "divmod": lambda x, n: (x + divmod(17, n + 1)[0], round(n / 3), n // 2, pow(2, n), bin(n)),
    "matched": lambda x, n: x + {0: 5, 3: 7}.get(n, n),
    "zip": lambda x, n: (x, list(zip(range(n), "abc")), list(enumerate("abc", n))),
    "any": lambda x, n: (x, any(i == n for i in range(4)), all(i < n for i in range(3))),
    "delete": delete,
    "assign": assign,
    "across an end": across_an_end,
    "held across an end": held_across_an_end,
    "loop": a_loop,
    "dict": a_dict,
    "nested": nested,
    "counted": counted,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_has_its_own_result(name):
    check(FUNCTIONS[name], lambda: torch.ones(2), [(n,) for n in (3, 1, 2, 5, 0, 4, 2, 3)])


MIXED = {
    "max": lambda x, n, k: x * sum(range(n)) + max(n, k),
    "min": lambda x, n, k: (x * min(n, k), min(n, k)),
    "power": lambda x, n, k: (x + 2 ** (n - 2), n**2),
    "round": lambda x, n, k: (x * round(k), round(k, n)),
    "size of a slice": lambda x, n, k: x[n:] + k,
    "size from the end": lambda x, n, k: x[: x.shape[0] - n].reshape(-1)[:2].sum() * n,
    "an empty slice": lambda x, n, k: x[n + 2 :].sum(0) + len(x[n:].reshape(-1)[:2].tolist()),
    "one of many": lambda x, n, k: x.t().narrow(0, 0, n + 1).unsqueeze(0) * k,
    "padded": lambda x, n, k: torch.nn.functional.pad(x, (n, 1), value=k),
    "filled": lambda x, n, k: torch.full((n + 1,), k) + n,
}


@pytest.mark.parametrize("name", MIXED)
def test_an_int_and_a_float(name):
    calls = [(0, 2.5), (3, 0.5), (1, 3.5), (2, 0.25), (4, 0.25), (5, -1.5), (0, -0.5), (3, 0.5)]
    check(MIXED[name], lambda: torch.arange(48.0).reshape(6, 8), calls)


def test_a_size_that_becomes_nothing():
    def fn(x, n):
        part = x[max(n - 1, 0) :]
        return torch.outer(x.reshape(-1)[:3], part.reshape(-1)[:4])

    check(fn, lambda: torch.arange(24.0).reshape(4, 6), [(n,) for n in (1, 3, 2, 4, 5, 6, 0)])


GIVEN_TO_C = {
    "enumerate": lambda n: [i for i, _ in enumerate("abc", n)],
    "enumerate by name": lambda n: [i for i, _ in enumerate("abc", start=n)],
    "product": lambda n: list(itertools.product("ab", repeat=n)),
    "zip_longest": lambda n: list(itertools.zip_longest("ab", "abc", fillvalue=n)),
    "chain": lambda n: list(itertools.chain([n], [n + 1])),
    "islice": lambda n: list(itertools.islice(range(10), n)),
    "pairwise": lambda n: list(itertools.pairwise((n, n + 1, n + 2))),
    "tuple and list": lambda n: (tuple([n, 2]), list((n, 3))),
    "partial": lambda n: functools.partial(lambda a, b: (a, b), n)(2),
    "slice": lambda n: [1, 2, 3, 4, 5, 6][slice(n)],
    "repeat": lambda n: (list(itertools.repeat(1, n)), list(itertools.islice(itertools.count(n), 3)), list(range(n))),
    "accumulate": lambda n: list(itertools.accumulate([n, n])),
    "product of a tuple": lambda n: list(itertools.product((n,), repeat=2)),
    "sum": lambda n: (sum([1, 2], n), max(n, 3), sorted([3, n]), "a" * n, [1] * n, (0,) * n),
    "map": lambda n: (list(map(lambda v: v + n, [1, 2])), dict(a=n), {n: 1}, {n}, frozenset([n])),
    "texts": lambda n: (f"{n}", str(n), "%d" % n, repr(n), n.bit_length(), divmod(n, 2), round(n / 2)),
    "zip": lambda n: (torch.Size([n, 2]), list(zip([n], [1], strict=True)), next(reversed([n, 1])), isinstance(n, int)),
}


@pytest.mark.parametrize("name", GIVEN_TO_C)
def test_numbers_given_to_c(name):
    fn = GIVEN_TO_C[name]
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x, n: (x * 2, fn(n)), recompile_limit=100)
    for n in (1, 2, 3, 1, 4, 2, 5):
        assert compiled(torch.ones(2), n)[1] == fn(n)


class Output(collections.OrderedDict):
    pass


@dataclasses.dataclass
class Settings:
    n: int
    parts: list


def popped(n):
    table = collections.OrderedDict(a=n, b=n + 1)
    table.move_to_end("a")
    return table.popitem(), table


Pair = collections.namedtuple("Pair", "first second")

KEPT_BY_C = {
    "a class of dictionaries": lambda n: (Output(a=n), Output([("a", n)], b=n + 1)),
    "a dictionary of pairs": lambda n: (dict([("a", n), ("b", n + 1)]), dict(zip("ab", (n, n + 1), strict=True))),
    "a dictionary of items": lambda n: dict(Output(a=n, b=[n]).items()),
    "update with pairs": lambda n: {}.update([("a", n)]) or collections.OrderedDict(zip("a", [n], strict=True)),
    "two dictionaries": lambda n: {"a": n, "b": 1} | {"b": n + 1},
    "an ordered dictionary": popped,
    "a dictionary of a generator": lambda n: dict((k, [v]) for k, v in [("a", n), ("b", n + 1)]),
    "a dataclass with a dictionary": lambda n: dataclasses.asdict(Settings(n, {"a": [n]})),
    "a namespace": lambda n: types.SimpleNamespace(a=n),
    "a map": lambda n: list(map(lambda v: [v], [n, n + 1])),
    "a named tuple": lambda n: Pair(n, n + 1)._asdict(),
    "a deep copy": lambda n: copy.deepcopy({"a": [n, (n + 1, "b")], "c": Settings(n, [n])}),
    "a dataclass": lambda n: dataclasses.asdict(Settings(n, [n, (n, 1)])),
}


@pytest.mark.parametrize("name", KEPT_BY_C)
def test_numbers_that_c_only_keeps(name):
    fn = KEPT_BY_C[name]
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x, n: (x * 2, fn(n)))
    for n in (5, 6, 7, 300, 9):
        assert compiled(torch.ones(2), n)[1] == fn(n)
    assert torchbolt.stats()["recordings"] == 2


PAIRS = {
    "tuples": lambda n: dict((k, n) for k in "ab"),
    "lists and texts": lambda n: dict((p for p in (["a", n], "cd", ("a", 3))), z=n),
    "iterators": lambda n: dict(map(reversed, [("a", n), (n, 1)])),
    "one that is too long": lambda n: dict(p for p in [("a", n), (1, 2, 3)]),
    "none": lambda n: dict(p for p in [("a", n), n]),
    "keys": lambda n: dict(collections.UserDict(a=n), b=1),
    "named": lambda n: list(dict(a=collections.UserList([n]))["a"]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_dictionaries_of_what_python_goes_through(name):
    def outcome(fn, n):
        try:
            return fn(torch.ones(2), n)[1]
        except (TypeError, ValueError) as error:
            return repr(error)

    def fn(x, n):
        return x * 2, PAIRS[name](n)

    torchbolt.reset()
    compiled = torchbolt.compile(fn, recompile_limit=100)
    for n in (5, 6, 7, 300, 9):
        assert outcome(compiled, n) == outcome(fn, n)


KEYS_GIVEN_TO_C = {
    "pairs": lambda n: dict([(n, 1), (2, 3)]),
    "zip": lambda n: dict(zip((n, 2), (1, 3), strict=True)),
    "items": lambda n: (dict({n: 1, 2: 3}.items()), Output({n: 1}.items())),
    "two dictionaries": lambda n: {n: 1} | {2: 3},
    "a class of dictionaries": lambda n: (Output({n: 1}), Output({n: 1})[n], 2 in Output({n: 1})),
    "an ordered dictionary": lambda n: (lambda d: (d.move_to_end(2), d.popitem(last=False)))(Output([(n, 1), (2, 3)])),
}


@pytest.mark.parametrize("name", KEYS_GIVEN_TO_C)
def test_keys_given_to_c(name):
    fn = KEYS_GIVEN_TO_C[name]
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x, n: (x * 2, fn(n)), recompile_limit=100)
    for n in (1, 5, 2, 300, 2, 5):
        assert compiled(torch.ones(2), n)[1] == fn(n)


@pytest.mark.parametrize(
    "pick", [max, lambda a, b: sum([], a), lambda a, b: max([], default=b)], ids=["max", "sum", "default"]
)
def test_lists_that_c_gives_back(pick):
    def fn(x, a, b):
        picked = pick(a, b)
        picked.append(1)
        return x + a[0], picked is a, picked is b

    torchbolt.reset()
    compiled = torchbolt.compile(fn, recompile_limit=100)
    for n in (1, 5, 2, 7, 3):
        mine, theirs = ([n], [n * 5 % 7, 3]), ([n], [n * 5 % 7, 3])
        assert compiled(torch.ones(1), *mine) == fn(torch.ones(1), *theirs) and mine == theirs


def named(x, a, rest, **more):
    return x * a, rest, more


def grows(x, table):
    try:
        for key in table:
            table[key + "'"] = 1
    except RuntimeError as error:
        return str(error)


def counts(x, table):
    table["a"] += 1
    table["new"] = table["a"] * 2
    return x * table["z"], {k: v for k, v in table.items()}, {**table}, list(table.values())


def takes_out(x, table):
    first = table.pop("a")
    table["a"] = first + 1
    return list(table.items()), x * first


def writes(x, table):
    for key, value in table.items():
        table[key] = value if key == "rest" else value + 1
    return list(table.values())


def keeps_the_view(x, table):
    values = table.values()
    table["a"] = 1000
    return list(values)


FROM_A_DICT = {
    "items": lambda x, table: [(k, v) for k, v in table.items()],
    "values": lambda x, table: [x * v for v in table.values() if isinstance(v, int)],
    "keys": lambda x, table: ([k for k in table], [k for k in table.keys()], x * table["a"]),
    "copied": lambda x, table: (table.copy(), dict(table), table.copy()["rest"] is table["rest"]),
    "joined": lambda x, table: ({**table, "c": 3}, {"c": 3} | table),
    "named": lambda x, table: named(x, **table),
    "named with others": lambda x, table: named(x, **table, c=4),
    "gathered": lambda x, table: (list(table.values()), tuple(table.items())),
    "popped": lambda x, table: x * dict(table).pop("a"),
    "a class of dictionaries": lambda x, table: Output(table),
    "comprehension": lambda x, table: {k: v for k, v in table.items() if k != "rest"},
    "instance": lambda x, table: {k: v for k, v in vars(types.SimpleNamespace(**table)).items() if k == "a"},
    "grows": grows,
    "counts": counts,
    "takes out": takes_out,
}


FROM_A_LIST = {
    "joined": lambda x, items: (items + [1], [1] + items, items * 2),
    "slices": lambda x, items: (items[1:], items[::-1], items[:]),
    "copied": lambda x, items: (items.copy(), list(items), [*items]),
    "unpacked": lambda x, items: (lambda a, b: a * x - b)(*items),
}

FROM_OUTSIDE = [pytest.param(fn, lambda n: [n, 2], id=f"list, {name}") for name, fn in FROM_A_LIST.items()] + [
    pytest.param(fn, lambda n: {"a": n, "rest": [2], "z": n + 1}, id=f"dict, {name}")
    for name, fn in FROM_A_DICT.items()
]


@pytest.mark.parametrize("fn, made", FROM_OUTSIDE)
def test_numbers_of_a_container_from_outside(fn, made):
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x, container: (x * 2, fn(x, container)))
    for n in (5, 6, 7, 300, 9):
        mine, theirs = made(n), made(n)
        assert repr(compiled(torch.ones(2), mine)[1]) == repr(fn(torch.ones(2), theirs)) and mine == theirs
    assert torchbolt.stats()["recordings"] == 2


@pytest.mark.parametrize("fn", [writes, keeps_the_view], ids=lambda fn: fn.__name__)
def test_dicts_that_are_written_while_they_are_gone_through(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, recompile_limit=100)
    for n in (5, 6, 7, 300, 9):
        mine, theirs = ({"a": n, "rest": [2], "z": n + 1} for _ in range(2))
        assert compiled(torch.ones(2), mine) == fn(torch.ones(2), theirs) and mine == theirs


def test_a_number_that_is_always_another_ends_the_region_where_it_is_taken():
    """C code that takes a number for what it is would be a program for each: few are kept, and then there is an end."""

    def fn(x, step):
        y = x.sin() * step
        return y.cos() + bisect.bisect([3, 5, 9], step)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for step in range(30):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, step), fn(x, step))
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0 and stats["recordings"] <= 9, stats
    assert stats["break_reasons"] == {"a number that is another one in each call is taken for what it is": 1}


def test_a_number_of_a_few_values_is_a_program_for_each():
    def fn(x, size):
        return x.sin() + bisect.bisect([3, 5, 9], size)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for step in range(20):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, step % 5), fn(x, step % 5))
    stats = torchbolt.stats()
    assert stats["graph_breaks"] == 0 and stats["eager_fallbacks"] == 0, stats
