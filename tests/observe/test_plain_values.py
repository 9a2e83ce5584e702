# tests/observe/test_plain_values.py
"""Objects whose class stands on top of int, float or str are what they are worth; cached functions what they give."""

from __future__ import annotations

import functools

import pytest
import torch

import torchbolt


class Int(int):
    pass


class Float(float):
    pass


class Text(str):
    pass


class Bytes(bytes):
    pass


class Complex(complex):
    pass


X = torch.ones(2)
VALUES = {
    "times": (lambda x, v: x * v, [Int(2), Int(3)]),
    "plus in Python": (lambda x, v: x * (v + 1), [Int(2), Int(3)]),
    "branch": (lambda x, v: x if v > 2 else x * 2, [Int(2), Int(3)]),
    "float": (lambda x, v: x * v, [Float(2), Float(3), Float(0.0), Float(-0.0)]),
    "size": (lambda x, v: torch.ones(v) * x[0], [Int(2), Int(3)]),
    "dimension": (lambda x, v: x[None].sum(v), [Int(0), Int(1)]),
    "index": (lambda x, v: torch.arange(4)[v], [Int(0), Int(1)]),
    "key": (lambda x, v: x * {1: 2, 3: 4}[v], [Int(1), Int(3)]),
    "range": (lambda x, v: [x * i for i in range(v)], [Int(1), Int(3)]),
    "format": (lambda x, v: (x + 1, f"{v}{v:03d}"), [Int(1), Int(3)]),
    "keyword": (lambda x, v: torch.add(x, x, alpha=v), [Int(1), Int(3)]),
    "text": (lambda x, v: x if v == "a" else x * 2, [Text("a"), Text("b")]),
    "attribute": (lambda x, v: getattr(x, v)(), [Text("sin"), Text("cos")]),
    "bytes": (lambda x, v: x * v[0], [Bytes(b"a"), Bytes(b"b")]),
    "complex": (lambda x, v: x * v, [Complex(1j), Complex(2j)]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("in_a_list", [False, True])
def test_their_values_are_guarded(name, in_a_list):
    inner, values = VALUES[name]

    def program(x, given):
        return inner(x, given[0] if in_a_list else given)

    compiled = torchbolt.compile(program)
    for value in [*values, *values]:
        given = [value] if in_a_list else value
        assert repr(compiled(X, given)) == repr(program(X, given))


factor = [3]


@functools.lru_cache
def scaled(n):
    return n * factor[0]


@functools.cache
def table(n):
    return torch.arange(n) * factor[0]


@functools.lru_cache(maxsize=1)
def only_the_last(n):
    return n * factor[0]


class Holder:
    @functools.lru_cache(maxsize=4)  # noqa: B019
    def scaled(self, n):
        return n * factor[0]


holder = Holder()
CACHED = {
    "number": lambda x: x * scaled(2),
    "keyword": lambda x: x * scaled(n=2),
    "tensor": lambda x: x + table(2),
    "size": lambda x: x + table(x.shape[0]),
    "method": lambda x: x * holder.scaled(3),
    "small cache": lambda x: x * only_the_last(1) + only_the_last(2),
}


@pytest.mark.parametrize("name", CACHED)
def test_cached_functions_give_what_their_caches_hold(name):
    def clear():
        for function in (scaled, table, only_the_last, Holder.scaled):
            function.cache_clear()

    def calls(function):
        seen = []
        factor[0] = 3
        clear()
        seen += [repr(function(X)), repr(function(X))]
        factor[0] = 5  # the caches hold what they held
        seen.append(repr(function(X)))
        clear()
        seen += [repr(function(X)), repr(function(X))]
        table(2).mul_(3)
        seen.append(repr(function(X)))
        return seen

    torchbolt.reset()
    want = calls(CACHED[name])
    assert calls(torchbolt.compile(CACHED[name])) == want
    assert torchbolt.stats()["eager_fallbacks"] == 0
