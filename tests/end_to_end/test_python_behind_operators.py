# tests/end_to_end/test_python_behind_operators.py
"""Python that native code calls: operators written in Python, autograd functions, iterators where a region ends."""

from __future__ import annotations

import collections
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from autograd_functions import Scaled

import torchbolt


@torch.library.custom_op("torchbolt_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * factor)


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, same):
        ctx.save_for_backward(x)
        return x * 2 + 1, same

    @staticmethod
    def backward(ctx, grad, _):
        return grad * 3, None  # not the derivative: tells who computed it


def check(fn, *args, regions=1):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        torch.testing.assert_close(compiled(*args), fn(*args))
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0
    assert stats["regions"] == regions
    return compiled


def test_an_operator_written_in_python_is_one_operator():
    check(lambda x: scaled(x + 1, 2.0) * 3, torch.randn(4))


@pytest.mark.parametrize("grad", [False, True])
def test_autograd_function_without_gradient(grad):
    x = torch.randn(4)
    with torch.set_grad_enabled(grad):
        check(lambda x: Double.apply(x + 1, x)[0] * 3, x)
        check(lambda x: Scaled.apply(x) + Scaled.apply(x, 2), x)


def test_autograd_function_gives_inputs_back_as_views():
    x = torch.randn(4)
    compiled = check(lambda x: Double.apply(x, x)[1], x)
    same = compiled(x)
    assert same is not x and same.data_ptr() == x.data_ptr()


def test_autograd_function_with_gradient_keeps_its_backward():
    compiled = torchbolt.compile(lambda x: Double.apply(x * 1, x)[0].sum())
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 3.0))


def over(container):
    def fn(x):
        total = x * 0
        for item in container:
            total = total + x * len(str(item))
            if total.sum() > 1000:
                break
        return total

    return fn


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1, 22],
        lambda: "ab",
        lambda: b"ab",
        lambda: {"a": 1, "bb": 2}.values(),
        lambda: {"a": 1, "bb": 2}.items(),
        lambda: {"a": 1, "bb": 2},
        lambda: collections.OrderedDict(a=1, bb=2).items(),
        lambda: {1, 22},
    ],
)
def test_a_region_ends_inside_a_loop_over(make):
    check(over(make()), torch.rand(4) + 1, regions=2)


def test_union_of_classes_from_outside():
    either = int | float
    check(lambda x: x + (1 if isinstance(2, either) else 2), torch.randn(3))


def test_repeat_interleave_by_a_number_does_not_end_the_region():
    check(lambda x: x.repeat_interleave(2, dim=-1) * 2, torch.randn(3, 4))


def test_results_whose_elements_share_memory():
    check(lambda x: (x * 2).sum(0, keepdim=True).expand(5, 4), torch.randn(3, 4))
    check(lambda x: torch.tensor([1.0, 2.0]).expand(3, 2), torch.randn(3, 4))


def test_whether_a_tensor_is_a_leaf_is_noticed():
    def f(x):
        return x * 2 if x.is_leaf else x * 3

    torchbolt.reset()
    compiled = torchbolt.compile(f)
    leaf = torch.randn(4, requires_grad=True)
    holder = SimpleNamespace(x=leaf)
    held = torchbolt.compile(lambda h: h.x * 2 if h.x.is_leaf else h.x * 3)
    for x in (leaf, leaf + 1, torch.randn(4), leaf, leaf + 1):
        torch.testing.assert_close(compiled(x), f(x))
        holder.x = x
        torch.testing.assert_close(held(holder), f(x))
    assert torchbolt.stats()["recompiles"] == 4


def test_who_requires_gradients_is_only_guarded_where_it_matters():
    torchbolt.reset()
    layer = torch.nn.Linear(4, 4)
    compiled, x = torchbolt.compile(layer), torch.randn(2, 4)
    with torch.no_grad():
        compiled(x)
        layer.requires_grad_(False)
        torch.testing.assert_close(compiled(x), layer(x))
        assert torchbolt.stats()["recompiles"] == 0
    layer.requires_grad_(True)
    assert compiled(x).requires_grad
    layer.requires_grad_(False)
    assert not compiled(x).requires_grad

    torchbolt.reset()
    asks = torchbolt.compile(lambda t: t * 2 if t.requires_grad else t * 3)
    with torch.no_grad():
        for t in (torch.ones(2), torch.ones(2, requires_grad=True), torch.ones(2)):
            assert asks(t).tolist() == [2.0 if t.requires_grad else 3.0] * 2


def test_who_only_looks_on_ends_no_region():
    """Audit hooks, callbacks of the garbage collector and finalisers run Python at any instruction."""
    script = """
import gc, sys, torch, torchbolt
seen = []
def hook(event, args):
    seen.append(event)
sys.addaudithook(hook)
def collected(phase, info):
    seen.append(phase)
gc.callbacks.append(collected)
class Last:
    def __del__(self):
        seen.append(len(seen))
def program(x):
    for i in range(3):
        x = x + sum([k for k in range(i)]) * program.__code__.co_argcount
    return x
gc.set_threshold(1)
compiled = torchbolt.compile(program, fullgraph=True)
for _ in range(3):
    for _ in range(100):
        last = Last()
        last.itself = last  # goes when the collector comes by
    assert torch.equal(compiled(torch.ones(3)), program(torch.ones(3)))
assert seen and torchbolt.stats()["regions"] == 1, torchbolt.stats()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


class Hashed:
    def __init__(self):
        self.hashes = self.compared = 0

    def __hash__(self):
        self.hashes += 1
        return 42

    def __eq__(self, other):
        self.compared += 1
        return self is other


def missing(table, key):
    try:
        table[key]
    except KeyError:
        return None


@pytest.mark.parametrize(
    "use",
    [
        lambda d, k: d.setdefault(k, 5), lambda d, k: d.get(k), lambda d, k: k in d, lambda d, k: d.pop(k, 0),
        missing, lambda d, k: d.__contains__(k), lambda d, k: d.update({k: 1}), lambda d, k: {k: 1, Hashed(): 2},
    ],
)  # fmt: skip
@pytest.mark.parametrize("outside", [False, True])
def test_a_key_is_hashed_and_compared_as_often_as_in_eager(use, outside):
    def fn(x, table):
        key = Hashed()
        table = table if outside else {Hashed(): 1}
        use(table, key)
        return x + key.hashes, key.hashes, key.compared, len(table)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    tables = [{Hashed(): 1} for _ in range(2)]
    for _ in range(4):
        got, want = compiled(torch.ones(2), tables[0]), fn(torch.ones(2), tables[1])
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
