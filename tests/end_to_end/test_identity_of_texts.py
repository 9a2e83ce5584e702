# tests/end_to_end/test_identity_of_texts.py
"""Texts and numbers that regions carry along stay the objects they are, wherever the program puts them."""

from __future__ import annotations

import time
import weakref

import pytest
import torch

import torchbolt

# Not shared with every other text or number of that value.
text, big = "".join(["te", "xt"]), 10**6


class Plain:
    pass


class Slotted:
    __slots__ = ("a",)


class Kept:
    def __init__(self):
        self.data = {}

    def __contains__(self, key):
        time.clock_gettime(0)
        return key in self.data


def in_lists(x):
    v, n, kept = text, big + 1, []
    time.clock_gettime(0)
    kept.append(v), kept.append(n)
    made, pair = [v, n], (v, [n])
    time.clock_gettime(0)
    return kept[0] is v, kept[1] is n, made[0] is v, made[1] is n, pair[0] is v, pair[1][0] is n, x + 1


def in_dicts(x):
    v, kept = text, {}
    time.clock_gettime(0)
    kept["a"], kept["b"] = v, {"c": v}
    time.clock_gettime(0)
    return kept["a"] is v, kept.get("a") is v, kept["b"]["c"] is v, x + 1


def in_objects(x):
    v, n = text, big + 1
    plain, slotted = Plain(), Slotted()
    time.clock_gettime(0)
    plain.v, slotted.a = v, v
    made = Plain()
    made.n, made.inner = n, Plain()
    made.inner.n = n
    time.clock_gettime(0)
    return plain.v is v, slotted.a is v, made.n is n, made.inner.n is n, x + 1


def in_classes(x):
    v = text
    Plain.first = text
    time.clock_gettime(0)
    Plain.second = v
    time.clock_gettime(0)
    return Plain.second is Plain.first, Plain.second is v, x + 1


def in_cells(x):
    v, w = text, None

    def inner():
        return v is w

    time.clock_gettime(0)
    w = v
    time.clock_gettime(0)
    return inner(), x + 1


def put_by_the_instruction_that_ends(x):
    known, key, v = weakref.WeakKeyDictionary(), Plain(), text
    first = known.setdefault(key, v)
    second = known.setdefault(key, "other")
    return first is v, second is v, known[key] is v, x + 1


def put_by_a_store_that_ends(x):
    found, kept = {Plain(): big + 1, Plain(): big + 2}, {}
    time.clock_gettime(0)
    for key, value in found.items():
        kept[weakref.ref(key)] = value
    time.clock_gettime(0)
    return [a is b for a, b in zip(found.values(), kept.values())], x + 1


def updated(x):
    known, given = weakref.WeakKeyDictionary(), {Plain(): big + 1, Plain(): big + 2}
    known.update(given)
    return [known[key] is given[key] for key in given], [given.get(key) is known[key] for key in known], x + 1


def below_c(x):
    kept, v = Kept(), text
    kept.data["a"] = v
    time.clock_gettime(0)
    found = "a" in kept
    return found, kept.data["a"] is v, x + 1


def popped(x):
    def pop(known, key1, value1, key2, value2):
        known[key1], known[key2] = value1, value2
        seen = []
        while len(known):
            key, value = known.popitem()
            seen.append(value is (value1 if key is key1 else value2))
        return seen

    values = pop(weakref.WeakValueDictionary(), "key 1", Plain(), "key 2", Plain())
    return values, pop(weakref.WeakKeyDictionary(), Plain(), "value 1", Plain(), "value 2"), x + 1


PROGRAMS = [
    in_lists,
    in_dicts,
    in_objects,
    in_classes,
    in_cells,
    put_by_the_instruction_that_ends,
    put_by_a_store_that_ends,
    updated,
    below_c,
    popped,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_they_stay_what_they_are(program):
    compiled = torchbolt.compile(program)
    for i in range(4):
        x = torch.full((2,), 1.0 + i)
        assert repr(compiled(x)) == repr(program(x))
