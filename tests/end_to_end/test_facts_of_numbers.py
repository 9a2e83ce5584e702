# tests/end_to_end/test_facts_of_numbers.py
"""What a program goes by when it asks about a number that differs: the answer is guarded, not the number."""

from __future__ import annotations

import pytest
import torch
from test_symbolic_numbers import FLOATS, INTS, run

import torchbolt

IN_NONE = [(i,) for i in (3, 7, 4, 8, 2, 9)]
TABLE = {1: 2.0, 5: 3.0}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: x * 2 if n in (1, 5) else x + n,
        lambda x, n: x * 2 if n in {1, 5} else x + n,
        lambda x, n: x * 2 if n not in [1, 5.0, "a", None] else x + n,
        lambda x, n, among=[1, 5]: x * 2 if n in among else x + n,  # noqa: B006
        lambda x, n: x * 2 if n in TABLE else x + n,
        lambda x, n: x * 2 if n in range(5, 7) else x + n,
        lambda x, n: x * TABLE.get(n, 1.0) + n,
        lambda x, n: x + n if TABLE.get(n) is None else x,
        lambda x, n: x * 2 if (1, 5).__contains__(n) else x + n,
        lambda x, n: x * 2 if bool(n) else x + n,
        lambda x, n: x * 2 if x.shape[0] + n in (1, 5) else x + n,
        lambda x, n: x * 2 if n / 2 in (0.0, 2.5) else x + n,
    ],
)
def test_whether_a_number_is_there_is_the_fact(fn):
    run(fn, IN_NONE, 2)
    run(fn, [*IN_NONE, (5,), (1,), (0,), (6,), (5,)], None)


def test_a_number_among_what_changes():
    """Each call of eager finds what the container holds by then."""

    def fn(x, n, among):
        if n in among:
            return x * 2
        among.append(n)
        return x + n

    for kind in (list, set):
        torchbolt.reset()
        calls = [(n, kind([1, n * m])) for n in (3, 4, 5, 3) for m in (0, 1)]
        fast = torchbolt.compile(lambda x, n, a: x * 2 if n in a else x + n, recompile_limit=32)
        x = torch.randn(3)
        for n, among in calls:
            assert torch.equal(fast(x, n, among), x * 2 if n in among else x + n)
    torchbolt.reset()
    fast = torchbolt.compile(fn, recompile_limit=32)
    mine, theirs = [1], [1]
    for n in (3, 4, 3, 5, 5, 1, 7, 8, 9, 1):
        assert torch.equal(fast(x, n, mine), fn(x, n, theirs)) and mine == theirs


def test_a_nan_is_there_by_identity():
    nan = float("nan")
    torchbolt.reset()
    fast = torchbolt.compile(lambda x, a, among: x * 2 if a in among else x + 1, recompile_limit=32)
    x = torch.randn(3)
    for a, among in ((0.5, [nan]), (0.25, [nan]), (nan, [float("nan")]), (0.75, [nan, 0.75]), (2.0, [nan])):
        assert torch.equal(fast(x, a, among), x * 2 if a in among else x + 1)


def test_quotient_and_rest():
    run(lambda x, n: (x * divmod(n, 3)[1], divmod(n, 3), divmod(7, n + 1)), INTS, 2)
    run(lambda x, a: (x, divmod(a, 0.3), divmod(2, abs(a))), FLOATS, 2)
    torchbolt.reset()
    fast = torchbolt.compile(lambda x, n: (x, divmod(3, n)))
    for n in (2, 3, 4, 0):
        for each in (fast, lambda x, n: (x, divmod(3, n))):
            if n:
                assert each(torch.ones(2), n)[1] == divmod(3, n)
            else:
                with pytest.raises(ZeroDivisionError):
                    each(torch.ones(2), n)
