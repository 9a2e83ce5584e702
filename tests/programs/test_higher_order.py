# tests/programs/test_higher_order.py
"""Higher-order operators: torch.cond, while_loop, scan, map, associative_scan. Eager's own road leads through
torch.compile, so what they must come to is written out as Python."""

import subprocess
import sys

import pytest
import torch
from rows import HIT, MISS, Rows, negative, positive, randn
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan

import torchbolt

ROWS = Rows()


def branch(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)


def cond_like(x):
    return branch(x.sum() > 0, torch.sin, torch.cos, (x,))


@ROWS(
    calls=((positive(4),), (negative(4),)), like=cond_like, expect=(MISS, MISS, HIT, HIT), regions=3, ends="is_nonzero"
)
def cond_on_a_tensor(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


@ROWS(randn(4), like=lambda x: x.sin())
def cond_on_a_size(x):
    return torch.cond(x.shape[0] > 2, lambda x: x.sin(), lambda x: x.cos(), (x,))


@ROWS(randn(4), like=lambda x: (x.cos(), x + 1))
def cond_on_a_bool(x):
    return torch.cond(x.dim() == 2, lambda x: (x.sin(), x - 1), lambda x: (x.cos(), x + 1), (x,))


@ROWS(positive(4), like=lambda x: x.sin() + 1, regions=2, ends="is_nonzero", expect=(MISS, HIT, HIT))
def work_after_a_cond(x):
    y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return y + 1


@ROWS(positive(4), like=lambda x: (x * 2).sin().exp(), regions=3, ends="is_nonzero")
def cond_in_a_cond(x):
    def inner(x):
        return torch.cond(x.mean() > 0, lambda x: x.exp(), lambda x: x.neg(), (x,))

    return torch.cond(x.sum() > 0, lambda x: inner((x * 2).sin()), lambda x: inner(x), (x,))


@ROWS(positive(4), like=lambda x: x * 3, regions=2, ends="is_nonzero")
def cond_of_closures_without_operands(x):
    return torch.cond(x.sum() > 0, lambda: x * 3, lambda: x * 4)


@ROWS(positive(4), like=lambda x: {"a": x + 1, "b": [x * 2]}, regions=2, ends="is_nonzero")
def cond_that_gives_a_dict(x):
    def yes(x):
        return {"a": x + 1, "b": [x * 2]}

    return torch.cond(x.sum() > 0, yes, lambda x: {"a": x, "b": [x]}, (x,))


@ROWS(
    randn(4, requires_grad=True),
    like=lambda x: (x.sin() if x.sum() > 0 else x.cos()).sum(),
    regions=2,
    ends="is_nonzero",
    grad=True,
)
def cond_with_gradients(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)).sum()


def count_up(i, x):
    return i + 1, x * 2


def loop_like(x):
    i = torch.zeros((), dtype=torch.int64)
    while i < 3:
        i, x = count_up(i, x)
    return i, x


@ROWS(randn(4), like=loop_like)
def while_loop_of_tensors(x):
    return while_loop(lambda i, x: i < 3, count_up, (torch.zeros((), dtype=torch.int64), x))


@ROWS(randn(4), like=lambda x: (3, x * 8))
def while_loop_over_a_number(x):
    return while_loop(lambda i, x: i < 3, count_up, (0, x))


@ROWS(randn(4), like=lambda x: (5, x.clone()))
def while_loop_without_a_turn(x):
    return while_loop(lambda i, x: i < 3, count_up, (5, x))


def add(carry, x):
    total = carry + x
    return total, total * 2


def scan_like(x):
    total, outs = torch.zeros(3), []
    for row in x:
        total = total + row
        outs.append(total * 2)
    return total, torch.stack(outs)


@ROWS(randn(5, 3), like=scan_like)
def scan_of_rows(x):
    return scan(add, torch.zeros(3), x)


@ROWS(randn(3, 5), like=lambda x: (lambda c, o: (c, torch.movedim(o, 0, 1)))(*scan_like(x.t())))
def scan_of_columns(x):
    return scan(add, torch.zeros(3), x, dim=1)


@ROWS(randn(5, 3), like=lambda x: (lambda c, o: (c, o.flip([0])))(*scan_like(x.flip([0]))))
def scan_backwards(x):
    return scan(add, torch.zeros(3), x, reverse=True)


def dict_scan_like(x, y):
    h, outs = torch.zeros(3), []
    for a, b in zip(x, y):
        h = h * a + b
        outs.append({"h": h.clone()})
    return {"h": h}, {"h": torch.stack([o["h"] for o in outs])}


@ROWS(randn(5, 3), randn(5, 3, seed=1), like=dict_scan_like)
def scan_of_dicts(x, y):
    def step(carry, xs):
        h = carry["h"] * xs["a"] + xs["b"]
        return {"h": h}, {"h": h.clone()}

    return scan(step, {"h": torch.zeros(3)}, {"a": x, "b": y})


@ROWS(randn(4, 3), randn(3, seed=1), like=lambda x, w: torch.stack([(row * w).relu() for row in x]))
def map_over_rows(x, w):
    return map_(lambda row, w: (row * w).relu(), x, w)


@ROWS(randn(4, 3), like=lambda x: [x + 1, (x * 2).clone()])
def map_over_a_list(x):
    return map_(lambda rows: [rows[0] + 1, rows[1] * 2], [x, x.clone()])


@ROWS(randn(7, 3), like=lambda x: x.cumsum(0))
def associative_scan_of_sums(x):
    return associative_scan(torch.add, x, 0, combine_mode="generic")


def linear_recurrence_like(a, b):
    h, outs = torch.zeros(3), []
    for x, y in zip(a, b):
        h = x * h + y
        outs.append(h)
    return torch.stack(outs)


@ROWS(positive(6, 3), randn(6, 3, seed=1), like=linear_recurrence_like, near=1e-4)
def associative_scan_of_pairs(a, b):
    def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    return associative_scan(combine, (a, b), 0, combine_mode="generic")[1]


COND = torch.ops.higher_order.cond


@ROWS(positive(4), like=lambda x: x.sin(), regions=2, ends="is_nonzero")
def the_operator_itself(x):
    return COND(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.a, self.b, (x,))


class PlainGate(Gate):
    def forward(self, x):
        return (self.a if x.sum() > 0 else self.b)(x)


@ROWS.made(positive(2, 4), like_made=PlainGate, regions=2, ends="is_nonzero")
def cond_between_modules():
    return Gate()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_higher_order(row):
    row.check()


def test_the_peer_is_not_used():
    program = """
import sys, torch, torchbolt
from torch._higher_order_ops import map as map_, scan, while_loop
def fn(x):
    y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    _, z = while_loop(lambda i, z: i < 2, lambda i, z: (i + 1, z * 2), (0, y))
    return scan(lambda c, r: (c + r, c * r), torch.zeros(2), z)[1] + map_(lambda r: r + 1, z)
compiled = torchbolt.compile(fn)
with torch.no_grad():
    for _ in range(3):
        compiled(torch.ones(3, 2))
assert torchbolt.stats()["eager_fallbacks"] == 0
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stdout + done.stderr


def test_gradients_of_the_operator_associative_scan():
    """Of all pairs of steps there would be 90,000."""

    def combine(a, x, b, y):
        return a * b, x * b + y

    def fn(a, b):
        return torch.ops.higher_order.associative_scan(combine, [a, b], ())[1].sin()

    torchbolt.reset()
    fast = torchbolt.compile(fn)
    for _ in range(3):
        a, b = torch.rand(300, 2, requires_grad=True), torch.randn(300, 2, requires_grad=True)
        want = torch.autograd.grad(torch.stack(list(steps(a, b))).sin().sum(), (a, b))
        torch.testing.assert_close(torch.autograd.grad(fast(a, b).sum(), (a, b)), want, rtol=1e-4, atol=1e-5)
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0 and "asked for gradients" not in str(stats["break_reasons"]), stats


def steps(a, b):
    h = torch.zeros(2)
    for x, y in zip(a, b, strict=True):
        h = x * h + y
        yield h
