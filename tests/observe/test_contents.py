# tests/observe/test_contents.py
"""What Python's built-ins and torch's functions read out of containers of the outside world is guarded: each case reads
`cfg.value` in one way, and gives another result (or raises) when that value is replaced or changed in place."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from states import both_regions, equal, outcome, reader

import torchbolt

CASES = []


def case(first, second):
    """`function(x, value)` with one value and then another."""

    def add(function):
        CASES.append(pytest.param(function, first, second, id=function.__name__))
        return function

    return add


def raised(error, classes):
    try:
        raise error
    except classes:
        return 2
    except Exception:
        return 3


@case((KeyError, ValueError), (KeyError,))
def except_tuple(x, v):
    return x * raised(ValueError(), v)


@case((KeyError, (TypeError, ValueError)), (KeyError, (TypeError,)))
def except_nested_tuple(x, v):
    return x * raised(ValueError(), v)


@case(ValueError, KeyError)
def except_class(x, v):
    return x * raised(ValueError(), v)


@case((int, float), (str,))
def isinstance_tuple(x, v):
    return x * (2 if isinstance(3, v) else 3)


@case(int | str, str | bytes)
def isinstance_union(x, v):
    return x * (2 if isinstance(3, v) else 3)


@case((int, (float, bool)), (int, (float,)))
def issubclass_nested(x, v):
    return x * (2 if issubclass(bool, v[1]) else 3)


@case([1, 2], [1, 3])
def sum_of(x, v):
    return x * sum(v)


@case([1, 2], [1, 3])
def max_of(x, v):
    return x * max(v) + min(v)


@case(["aa", "b"], ["aa", "bbb"])
def max_by_key(x, v):
    return x * len(max(v, key=len))


@case([3, 1, 2], [3, 1, 0])
def sorted_of(x, v):
    return x * sorted(v)[0]


@case([1, 2], [1, 3])
def zip_of(x, v):
    return x * [a * b for a, b in zip(v, v)][-1]


@case([1, 2], [1, 2, 3])
def enumerate_of(x, v):
    return x * [i for i, _ in enumerate(v)][-1]


@case([1, 2], [1, 3])
def map_of(x, v):
    return x * list(map(float, v))[-1]


@case([1, 0], [0, 0])
def any_of(x, v):
    return x * (2 if any(v) else 3)


@case([1, 1], [1, 0])
def all_of(x, v):
    return x * (2 if all(v) else 3)


@case([1, 2], [1, 3])
def reversed_of(x, v):
    return x * next(iter(reversed(v)))


@case(["a", "b"], ["a", "bc"])
def joined(x, v):
    return x * len(",".join(v))


@case((1, "b"), (1, "bcd"))
def formatted(x, v):
    return x * len("%d %s" % v)


@case([1, 2], [1, 2, 3])
def in_f_string(x, v):
    return x * len(f"{v}")


@case({"a": 2}, {"a": 3})
def star_kwargs(x, v):
    return (lambda a: x * a)(**v)


@case([2, 3], [2, 4])
def star_args(x, v):
    return (lambda a, b: x * a + b)(*v)


@case({"a": 2}, {"a": 2, "b": 5})
def dict_of(x, v):
    return x * sum(dict(v, c=1).values())


@case({"a": 2}, {"a": 3})
def dict_merged(x, v):
    return x * ({"b": 1} | v)["a"]


@case({1, 2}, {1, 3})
def set_union(x, v):
    return x * max({0} | v)


@case([1, 2], [1, 3])
def contains(x, v):
    return x * (2 if 2 in v else 3)


@case([1, 2], [2, 2])
def count_of(x, v):
    return x * v.count(2)


@case([1, 2], [2, 1])
def index_of(x, v):
    return x * v.index(2)


@case([1, 2], [1, 3])
def compared(x, v):
    return x * (2 if v == [1, 2] else 3)


@case((1, 2), (1, 3))
def hashed(x, v):
    return x * {(1, 2): 2, (1, 3): 3}[v]


@case([1, 2], [1, 3])
def copied(x, v):
    return x * copy.copy(v)[1]


@case([[1], [2]], [[1], [3]])
def deep_copied(x, v):
    return x * copy.deepcopy(v)[1][0]


@case([1, 2, 3], [1, 2, 4])
def unpacked(x, v):
    _, *rest = v
    return x * rest[-1]


@case([1, 2, 3], [1, 5, 3])
def sliced(x, v):
    return x * v[1:][0]


@case(slice(0, 1), slice(0, 2))
def slice_object(x, v):
    return x[v] * 2


@case(("real", "T"), ("T", "T"))
def attribute_name(x, v):
    return getattr(x, v[0]) * 2


@case([0, 1], [0])
def reduced_dims(x, v):
    return x.sum(dim=v)


@case((3, 2), (6, 1))
def view_shape(x, v):
    return x.view(v) * 2


@case((1, 0), (0, 1))
def permuted(x, v):
    return x.permute(*v) * 2


@case((slice(None), 0), (slice(None), 1))
def index_tuple(x, v):
    return x[v] * 2


@case([0, 1], [1, 1])
def index_list(x, v):
    return x[v] * 2


@case((0, 1), (1, 0))
def padding(x, v):
    return F.pad(x, v)


@case(["ij->i"], ["ij->j"])
def einsum_text(x, v):
    return torch.einsum(v[0], x)


@case([2, 1], [1, 2])
def split_sizes(x, v):
    return x.split(v, dim=1)[0] * 2


@case({"dim": 0}, {"dim": 1})
def torch_kwargs(x, v):
    return x.softmax(**v)


@case((2, 1), (1, 2))
def repeats(x, v):
    return x.repeat(v)


@case([[1.0, 2.0, 3.0]], [[1.0, 2.0, 4.0]])
def tensor_of_lists(x, v):
    return x + torch.tensor(v)


@case([torch.float64], [torch.float32])
def dtype_in_list(x, v):
    return x.to(v[0])


@case([(1, "a"), (2, "b")], [(1, "a"), (3, "b")])
def dict_from_pairs(x, v):
    return x * max(dict(v))


@case({"a": 1}, {"b": 1})
def keys_of(x, v):
    return x * (2 if list(v) == ["a"] else 3)


@case((1, {"k": [2]}), (1, {"k": [3]}))
def matched(x, v):
    match v:
        case (1, {"k": [2]}):
            return x * 2
        case _:
            return x * 3


@case([1, 2], [1, 3])
def through_iterator(x, v):
    it = iter(v)
    next(it)
    return x * next(it)


@case(["scale"], ["shift"])
def vars_of(x, v):
    return x * {"scale": 2, "shift": 3}[v[0]]


@case("ab", "abc")
def length_of(x, v):
    return x * len(v)


@case(b"ab", b"abc")
def bytes_of(x, v):
    return x * sum(bytearray(v))


@case(range(3), range(4))
def range_of(x, v):
    return x * sum(v)


@pytest.mark.parametrize("function, first, second", CASES)
@both_regions
def test_contents_are_guarded(function, first, second, ended):
    cfg, compiled, program = reader(function, ended)
    x = torch.arange(6.0).reshape(2, 3)
    for value in (first, first, second, first, second):
        cfg.value = copy.deepcopy(value)
        assert equal(outcome(compiled, x), outcome(program, x)), value
    regions = torchbolt.stats()["regions"]
    for value in (first, second):
        cfg.value = copy.deepcopy(value)
        assert equal(outcome(compiled, x), outcome(program, x)), value
    assert torchbolt.stats()["regions"] == regions
    if not isinstance(first, list | dict | set):
        return
    # This is the container from before, changed in place.
    cfg.value = copy.deepcopy(first)
    assert equal(outcome(compiled, x), outcome(program, x))
    changed = copy.deepcopy(second)
    if isinstance(first, list):
        cfg.value[:] = changed
    else:
        cfg.value.clear()
        cfg.value.update(changed)
    assert equal(outcome(compiled, x), outcome(program, x))


@pytest.mark.parametrize(
    "function",
    [
        lambda values, y: torch.stack(values) * (lambda *a: len(a))(*values, 1 if y.sum() > 0 else 2),
        lambda values, y: (*values, 1 if y.sum() > 0 else 2)[0] * 2,
        lambda values, y: [*values, 1 if y.sum() > 0 else 2][1] * 2,
        lambda values, y: sum((*values, 1 if y.sum() > 0 else 2)),
        lambda values, y: {**dict(a=values[0]), "c": 1 if y.sum() > 0 else 2}["a"] * 2,
        lambda values, y: (lambda a, b, *, c: a * c + b)(*values, **{"c": 1 if y.sum() > 0 else 2}),
    ],
)
def test_a_region_begins_among_stars(function):
    """The list of arguments gathered so far is then something from outside."""
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for seed in range(4):
        torch.manual_seed(seed)
        values, y = [torch.randn(3), torch.randn(3)], torch.randn(3)
        torch.testing.assert_close(compiled(values, y), function(values, y))
