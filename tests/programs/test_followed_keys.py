# tests/programs/test_followed_keys.py
"""Numbers and texts that differ between calls as keys of dicts: another value is no other recording, another key met is.

What must not go wrong: a later value may be equal to another key (also as 1, True and 1.0 are), to another number that is a
key, and what C code makes of keys depends on what they are.
"""

import collections
import types

import pytest
import torch
from rows import HIT, MISS, Rows, randn

import torchbolt

ROWS = Rows()


def keyed(*calls, misses=(0, 1), **facts):
    """Decorates what makes fn(x, key): called once for each of `calls`; those in `misses` record."""
    calls = tuple((randn(3), *(call if isinstance(call, tuple) else (call,))) for call in calls)
    expect = tuple(MISS if i in misses else HIT for i in range(len(calls)))
    return ROWS.made(calls=calls, expect=expect, **{"regions": len(misses), **facts})


# -- Dicts that the function makes -------------------------------------------------------------------------------------


@keyed(3, 6, 7, 8, 5, 4, misses=(0, 1, 4))
def a_later_number_is_another_key():
    def fn(x, n):
        made = {}
        made[n] = x + 1
        made[5] = x
        return made, len(made), list(made)

    return fn


@keyed(3, 6, 7, 1, 2, 0, misses=(0, 1, 3, 4), regions=4)
def equal_to_true_and_to_a_float():
    def fn(x, n):
        made = {True: 1, 2.0: 2, None: 3, (7,): 4}
        made[n] = x + 1
        return made

    return fn


@keyed(3, 6, 7, 5, 8, misses=(0, 1, 3))
def equal_to_negative_zero():
    return lambda x, n: ({-0.0: x + 1, n - 5: 1}, {n - 5: x, -0.0: 1})


@keyed((3, 4), (6, 7), (7, 6), (8, 8), (5, 6), (9, 9), misses=(0, 1, 3))
def two_numbers_that_may_be_equal():
    def fn(x, n, m):
        made = {n: x + 1}
        made[m] = 2
        made[n] = x * 2
        made[n] += x
        return made, len(made)

    return fn


@keyed(3, 6, 7, 8, 12)
def numbers_computed_from_one():
    def fn(x, n):
        made = {n + i: x + i for i in range(3)}
        again = {}
        for i in range(3):
            again[(n + i) % 3] = i
        return made, made.get(n + 1), made.get(n + 5), list(made), again, n in made, n + 7 in made

    return fn


@keyed(3, 6, 7, 4, 8, misses=(0, 1, 3))
def asked_for():
    def fn(x, n):
        made = {n: x + 1}
        return 4 in made, n in made, n + 100 in made, made.get(4), made.get(n), made.setdefault(n, 1), n in {4: 1}

    return fn


@keyed(3, 6, 7, 8, misses=(0, 1, 2))
def removed():
    def fn(x, n):
        made = {7: x + 1, n: 2}
        value = made.pop(n)
        made[n] = 3
        del made[n]
        made["last"] = 4
        return made, value, made.pop(n, None)

    return fn


@keyed(3, 6, 7, 4, 8, misses=(0, 1, 3))
def merged():
    def fn(x, n):
        made = {n: x + 1}
        updated = {}
        updated.update(made)
        updated.update({4: 2})
        copy = made.copy()
        copy[4] = 5
        return {**made, 4: 2}, {4: 3, **made}, updated, copy, dict(made)

    return fn


@keyed(3, 6, 7, 4, 8, misses=(0, 1, 3))
def a_default_is_made():
    def fn(x, n):
        counts = collections.defaultdict(int)
        counts[n] += 1
        counts[4] += 1
        counts[n] += 2
        return counts, x + 1

    return fn


@keyed("a", "b", "c", "e", "d", misses=(0, 1, 3))
def texts():
    def fn(x, name):
        made = {}
        made[name] = x + 1
        made["e"] = 2
        return made, len(made), made.get("f")

    return fn


# -- Whatever else is done with keys takes them for what they are ----------------------------------------------------------

READERS = {
    "a set display": lambda d: len({*d, 4}),
    "a set": lambda d: len(set(d) | {4}),
    "views": lambda d: (4 in d.keys(), len(d.keys() & {4}), d.keys() == {4}),
    "comparison": lambda d: (d == {4: 1}, list(d) == [4]),
    "union": lambda d: d | {4: 2},
    "pairs": lambda d: len(dict([*d.items(), (4, 1)])),
    "update by pairs": lambda d: d.update([(4, 1)]) or len(d),
    "fromkeys": lambda d: len(dict.fromkeys([*d, 4])),
    "a shown dict": lambda d: (f"{d}", repr(d), str(d)),
    "sorted": lambda d: sorted([*d, 5], reverse=True),
    "popitem": lambda d: (d.popitem(), d),
    "a tuple": lambda d: len({(*d,): 1, (4,): 2}),
    "a chain of dicts": lambda d: len(collections.ChainMap(d, {4: 2})),
    "Counter": lambda d: collections.Counter([*d, 4]),
    "an error": lambda d: missing(d, 4),
}


def missing(made, key):
    try:
        return made[key], {}[next(iter(made))]
    except KeyError as error:
        return error.args, str(error)


for name, read in READERS.items():
    ROWS.add(
        name,
        lambda read=read: lambda x, n: (x + 1, read({n: 1})),
        (),
        {
            "calls": tuple((randn(3), n) for n in (3, 6, 4)),
            "expect": (MISS,) * 3,
            "regions": 3,
        },
    )

TEXT_READERS = {
    "names of arguments": lambda d: (lambda e=0, **rest: (e, rest))(**d),
    "attributes": lambda d: hasattr(types.SimpleNamespace(**d), "e"),
    "a namespace": lambda d: Namespace.of(d),
    "joined": lambda d: "".join(d),
    "interpolated": lambda d: "%(e)s" % collections.defaultdict(int, d),
    "translated": lambda d: "e".translate(dict.fromkeys([101], next(iter(d)))),
    "patterns": lambda d: matched(d),
}


class Namespace:
    @classmethod
    def of(cls, items):
        first, second = cls(), cls()
        first.__dict__[next(iter(items))] = 1
        second.__dict__ = dict(items)
        return hasattr(first, "e"), hasattr(second, "e"), second.__dict__


def matched(items):
    match items:
        case {"e": value}:
            return value
    return None


for name, read in TEXT_READERS.items():
    ROWS.add(
        name,
        lambda read=read: lambda x, n: (x + 1, read({n: 1})),
        (),
        {"calls": tuple((randn(3), n) for n in ("a", "b", "e")), "expect": (MISS,) * 3, "regions": 3},
    )


# -- Dicts that were there -------------------------------------------------------------------------------------------------


@keyed(3, 6, 7, 6, 3, 8, misses=(0, 1, 3), regions=2)
def a_cache():
    cache = {}

    def fn(x, n):
        if n not in cache:
            cache[n] = x + n
        return cache[n], cache.get(n)

    return fn


@keyed(3, 6, 7, 1, 2, 8, misses=(0, 1, 3))
def a_table_that_is_asked():
    table = {True: 10, 2.0: 20, "a": 7, (1, 2): 3, None: 4}
    return lambda x, n: (x * table.get(n, 1), n in table)


@keyed("a", "b", "c", "e", "d", misses=(0, 1, 3))
def a_table_of_names():
    table = {"e": 1}

    def fn(x, name):
        table[name] = 2
        return x * table["e"], table.pop(name), table.setdefault("e", 1)

    return fn


@keyed(3, 6, 7, 6, 8, misses=(0, 1, 3))
def lists_by_number():
    lists = collections.defaultdict(list)

    def fn(x, n):
        lists[n].append(n)
        return x + 1, lists[n][-1]

    return fn


@keyed(3, 6, 7, 8, 2)
def put_into_an_ordered_one_and_taken_out():
    steps = collections.OrderedDict()

    def fn(x, n):
        steps[n] = x
        return steps.pop(n) + 1, n in steps

    return fn


@keyed(3, 6, 7, 4, 8, ends="graph_break() is called", regions=3)
def after_a_region_has_ended():
    def fn(x, n):
        made = {n: x + 1}
        torchbolt.graph_break()
        made[4] = x + 2
        return made

    return fn


# -- Texts made of followed numbers ------------------------------------------------------------------------------------


@keyed(3, 5, 7, 8, 9, 6, misses=(0, 1, 2, 5))
def texts_of_numbers():
    def fn(x, n):
        made = {f"layer{n + i}": x + i for i in range(2)}
        made["layer7"] = 1
        return made, len(made), made.get(f"layer{n}")

    return fn


@keyed(3, 5, 7, 8, 9, misses=(0, 1, 2, 3))
def texts_made_in_other_ways():
    def fn(x, n):
        made = {f"{n:03d}": x + 1, f"{n!r}!": 2, "step %d" % n: 3, "k" + str(n): 4}
        made["007"] = 5
        made["k8"] = 6
        return made, len(made), "8!" in made

    return fn


@keyed(3, 5, 7, 5, 8, misses=(0, 1, 3), regions=2)
def a_cache_by_text():
    cache = {}

    def fn(x, n):
        key = f"step{n}"
        if key not in cache:
            cache[key] = x + n
        return cache[key], key

    return fn


@keyed("a", "b", "c", "e", "d", misses=(0, 1, 3))
def names_of_parameters():
    model = torch.nn.Linear(3, 3)

    def fn(x, prefix):
        found = {name: p.detach() + 1 for name, p in model.named_parameters(prefix=prefix)}
        found["e.bias"] = x
        return found, len(found)

    return fn


class Hooked(torch.nn.Module):
    """Hooks itself while it runs: the number of each hook is the next of all hooks."""

    def __init__(self, register, hook):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.register, self.hook = register, hook

    def forward(self, x):
        handle = getattr(self.inner, self.register)(self.hook)
        result = self.inner(x)
        handle.remove()
        return result, len(self.inner._forward_hooks), self.inner(x)


for register, hook in {
    "register_forward_hook": lambda module, args, result: result * 3,
    "register_forward_pre_hook": lambda module, args: (args[0] * 2,),
}.items():
    ROWS.add(
        register,
        lambda register=register, hook=hook: Hooked(register, hook),
        (randn(2, 3),),
        {"expect": (MISS, MISS, HIT, HIT, HIT), "regions": 2},
    )


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_followed_keys(row):
    row.check()
