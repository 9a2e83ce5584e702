# tests/programs/test_native_readers.py
"""C code that hashes, adds or compares the numbers which Python code gives it, one by one: the region is for those."""

import collections
import itertools
import math

import pytest
from rows import MISS, Rows, randn

ROWS = Rows()

READERS = {
    "fsum": math.fsum,
    "prod": math.prod,
    "bytes": bytes,
    "accumulate": lambda numbers: list(itertools.accumulate(numbers)),
    "compress": lambda numbers: list(itertools.compress("ab", numbers)),
    "fromkeys": lambda numbers: len(dict.fromkeys(numbers)),
    "a set display": lambda numbers: len({*numbers}),
    "OrderedDict of pairs": lambda numbers: len(collections.OrderedDict((n, 1) for n in numbers)),
    "a search": lambda numbers: 2 in numbers,
    "a search behind an iterator": lambda numbers: 2 in itertools.accumulate(numbers),
}


def counted_down(read):
    class State:
        n = 4

    def fn(x):
        State.n -= 1
        return x + 1, read(State.n * i for i in (1, 2))

    return fn


for name, read in READERS.items():
    ROWS.add(name, lambda read=read: counted_down(read), (randn(3),), {"expect": (MISS,) * 4, "regions": 4})


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_native_readers(row):
    row.check()
