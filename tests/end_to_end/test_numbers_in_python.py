"""Numbers that differ between calls, where Python itself goes by them: each call gets eager's result.

The tensor functions are those of test_symbolic_numbers.py; here a number decides which items a slice takes, how long a
loop is, what a text says. What was recorded for one number must not be given for another.
"""

import functools
import itertools

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
