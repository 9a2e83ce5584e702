# tests/end_to_end/test_symbolic_sizes.py
"""Sizes that differ between calls: which of them become symbols, what is guarded, and what Python makes of them."""

from __future__ import annotations

import functools
import random
import re

import pytest
import torch
from over_sizes import LINEAR, NORM, SIZES, check, norm, pointwise, regions
from torch.nn import functional as F

import torchbolt


@pytest.fixture(autouse=True)
def fresh():
    torchbolt.reset()


def test_never():
    compiled = torchbolt.compile(pointwise, dynamic=False)
    for n, (b, s) in enumerate(SIZES[:6]):
        check(compiled, pointwise, torch.randn(b, s, 16))
        assert regions(compiled) == n + 1


def test_only_what_changed_becomes_a_symbol():
    compiled = torchbolt.compile(pointwise)
    for b in (2, 3, 4):
        check(compiled, pointwise, torch.randn(b, 8, 16))
    assert regions(compiled) == 2
    assert "f32[s0, 8, 16]" in compiled._regions()[1]["graph"]
    check(compiled, pointwise, torch.randn(4, 9, 16))
    assert regions(compiled) == 3
    check(compiled, pointwise, torch.randn(5, 11, 16))
    assert regions(compiled) == 3


@pytest.mark.parametrize("sizes", [(0, 8), (1, 8), (3, 0), (3, 1), (1, 1), (0, 0)])
def test_none_and_one_are_sizes_of_their_own(sizes):
    compiled = torchbolt.compile(norm)
    for b, s in [(2, 8), (3, 9), sizes, (5, 7), sizes]:
        check(compiled, norm, torch.randn(b, s, 16))
    assert regions(compiled) == 3


def test_equal_numbers_are_not_equal_sizes():
    def outer_sum(x, y):
        return x[:, None] + y[None, :]

    compiled = torchbolt.compile(outer_sum, dynamic=True)
    for n, m in [(4, 4), (4, 7), (7, 4), (3, 3)]:
        x, y = torch.randn(n), torch.randn(m)
        torch.testing.assert_close(compiled(x, y), outer_sum(x, y))
    assert regions(compiled) == 1


def test_sizes_that_must_agree_are_guarded():
    compiled = torchbolt.compile(lambda x, y: x + y, dynamic=True)
    for n in (4, 7, 9):
        compiled(torch.randn(n), torch.randn(n))
    assert regions(compiled) == 1
    assert "s0 == s1" in compiled._regions()[0]["guards"] or "s1 == s0" in compiled._regions()[0]["guards"]
    x, y = torch.randn(5), torch.randn(1)
    torch.testing.assert_close(compiled(x, y), x + y)
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.randn(5), torch.randn(6))


def test_sizes_compared_with_a_list_from_outside():
    def fn(x, w):
        return x + 1 if list(x.shape) == w else x - 1

    compiled = torchbolt.compile(fn)
    for n, w in (
        (3, [3, 2]),
        (5, [5, 2]),
        (6, [6, 2]),
        (6, [7, 2]),
        (6, [6, 3]),
        (7, [7, 2]),
        (7, [6, 2]),
        (8, [8, 2, 1]),
    ):
        x = torch.randn(n, 2)
        assert torch.equal(compiled(x, w), fn(x, w)), (n, w)


def test_a_branch_on_a_size_is_a_guard_with_its_line():
    def branch(x):
        return x * 2 if x.shape[0] > 6 else x + 1

    compiled = torchbolt.compile(branch, dynamic=True)
    for n, expected in [(4, 1), (5, 1), (6, 1), (7, 2), (9, 2), (3, 2)]:
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), branch(x))
        assert regions(compiled) == expected
    guards = [r["guards"] for r in compiled._regions()]
    assert "s0 <= 6" in guards[0] and "6 < s0" in guards[1]


def test_slices_that_reach_the_end_leave_no_operator():
    def first_eight(x):
        return x[:8] + 0

    compiled = torchbolt.compile(first_eight, dynamic=True)
    for n in (5, 6, 8, 9, 12, 7):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), first_eight(x))
    assert regions(compiled) == 2


def test_a_loop_over_a_size_takes_it_for_a_number():
    def loop(x):
        out = 0
        for i in range(x.shape[0]):
            out = out + x[i]
        return out

    compiled = torchbolt.compile(loop, dynamic=True)
    for n in (3, 4, 5, 3):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), loop(x))
    assert regions(compiled) == 3
    assert "in loop" in compiled._regions()[0]["sizes_given_up"][0]
    assert "Size compiled in: " in str(torchbolt.explain(loop, dynamic=True)(x))


@pytest.mark.parametrize("index", ["x[10]", "x[:, 10]", "x[None, 10, 11]", "x[10] = 1"])
def test_an_error_tells_the_sizes_of_the_call(index):
    space = {}
    exec(f"def fn(x):\n try:\n  {index}\n except IndexError as error:\n  return str(error)", space)
    compiled = torchbolt.compile(space["fn"])
    for n in (4, 6, 5, 7, 4):
        assert compiled(torch.ones(n, n + 1)) == space["fn"](torch.ones(n, n + 1))


def test_the_recompile_limit_counts_as_before(caplog):
    def loop(x):
        return sum(x[i] for i in range(x.shape[0]))

    compiled = torchbolt.compile(loop, recompile_limit=3)
    for n in (2, 3, 4):
        compiled(torch.randn(n, 4))
    assert not caplog.records
    compiled(torch.randn(5, 4))
    assert "recompile_limit" in caplog.text
    assert regions(compiled) == 3


def test_a_tensor_that_is_only_handed_on_may_have_any_size():
    def fn(x, y):
        return [y * 2, x]

    def looks(x, y):
        return [y * 2, x, x.shape[1]]

    def joins(x, y):
        z = x[x[:, 0] > 0]
        return z * 2, y[y > 0].sort()[0]

    for program, compiled_for_sizes in ((fn, 2), (looks, 2), (joins, 2)):
        torchbolt.reset()
        compiled = torchbolt.compile(program)
        for i in range(6):
            x, y = torch.randn(20 + i, 3 + i % 3), torch.randn(30 + 2 * i)
            for got, want in zip(compiled(x, y), program(x, y), strict=True):
                assert got == want if isinstance(want, int) else torch.equal(got, want)
        assert regions(compiled) == compiled_for_sizes, program


def test_transposed_inputs_keep_their_order():
    compiled = torchbolt.compile(pointwise, dynamic=True)
    for n, m in [(3, 5), (4, 6), (7, 2)]:
        x = torch.randn(n, m).t()
        got = compiled(x)
        torch.testing.assert_close(got, pointwise(x))
        assert got.stride() == pointwise(x).stride()
    assert regions(compiled) == 1
    compiled(torch.randn(3, 5))
    assert regions(compiled) == 2


def test_inputs_written_to():
    def step(x, y):
        x.mul_(2)
        x[: y.size(0)] += y
        return x.sum()

    compiled = torchbolt.compile(step, dynamic=True)
    for n, m in [(6, 3), (8, 5), (9, 2)]:
        x, y = torch.randn(n, 4), torch.randn(m, 4)
        mine = x.clone()
        torch.testing.assert_close(compiled(mine, y), step(x, y))
        torch.testing.assert_close(mine, x)


def test_sizes_that_are_returned_or_kept_are_made():
    class Seen:
        pass

    def fn(x, seen):
        b, s = x.shape[:2]
        seen.sizes = [b, s * 2]
        return x * 2, s + 1, x.shape, {"n": (b, 3)}

    compiled = torchbolt.compile(fn)
    for b, s in SIZES:
        x, want, got = torch.randn(b, s, 16), Seen(), Seen()
        torch.testing.assert_close(compiled(x, got), fn(x, want))
        assert got.sizes == want.sizes and type(compiled(x, got)[2]) is torch.Size
    assert regions(compiled) == 2


class Kept:
    def __init__(self, sizes):
        self.sizes = sizes
        super().__init__()  # of object, which looks at nothing that the new one holds


def test_sizes_kept_by_an_object_that_is_being_made():
    def run(x):
        kept = Kept(x.size())
        return x.new_ones(kept.sizes) * x

    compiled = torchbolt.compile(run, dynamic=True)
    for n in (4, 7, 3):
        check(compiled, run, torch.randn(n, n + 1))
    assert regions(compiled) == 1


def test_sizes_live_on_behind_the_end_of_a_region(capsys):
    def fn(x):
        n = x.shape[0]
        y = x * n
        print("between")
        return y + n, torch.zeros(n)

    compiled = torchbolt.compile(fn, dynamic=True)
    for n in (3, 4, 6, 9):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))


def test_mark_dynamic():
    compiled = torchbolt.compile(pointwise)
    for n in (4, 5, 9):
        x = torch.randn(n, 8)
        torchbolt.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), pointwise(x))
    assert regions(compiled) == 1
    assert "f32[s0, 8]" in compiled._regions()[0]["graph"]


def test_mark_dynamic_has_limits():
    compiled = torchbolt.compile(pointwise)
    for n, expected in [(4, 1), (8, 1), (2, 2), (3, 2), (30, 3)]:
        x = torch.randn(n, 8)
        torchbolt.mark_dynamic(x, 0, min=4, max=8)
        torch.testing.assert_close(compiled(x), pointwise(x))
        assert regions(compiled) >= expected - 1


def test_a_mark_that_cannot_be_kept_names_the_line():
    def loop(x):
        return sum(x[i] for i in range(x.shape[0]))

    x = torch.randn(4, 8)
    torchbolt.mark_dynamic(x, 0)
    with pytest.raises(torchbolt.exc.ConstraintViolationError, match="size 0 of x .* in loop"):
        torchbolt.compile(loop)(x)
    y = torch.randn(4, 8)
    torchbolt.maybe_mark_dynamic(y, 0)
    torch.testing.assert_close(torchbolt.compile(loop)(y), loop(y))


@functools.lru_cache
def remembered(n):
    return n * 2


READERS = {
    "dict": lambda x: x * {4: 1.0}[x.shape[0]],
    "long": lambda x: x * (x.shape[0] in tuple(range(100))),
    "list": lambda x: [x, x + 1, x + 2, x + 3, x + 4][x.shape[0]],
    "element": lambda x: (x + 1, {x.shape[0]}),
    "bytes": lambda x: (x + 1, b"x" * x.shape[0]),
    "text": lambda x: (x + 1, ("x%d" % x.shape[0]).encode()),
    "cache": lambda x: x * remembered(x.shape[0]),
    "torch": lambda x: torch.broadcast_shapes(x.shape, (4, 4)) and x + 1,
}


@pytest.mark.parametrize("what", READERS)
def test_a_mark_that_cannot_be_kept_names_what_read_the_size(what):
    fn = READERS[what]
    x = torch.randn(4, 4)
    torchbolt.mark_dynamic(x, 0)
    here = f"forced it: {__file__}:{fn.__code__.co_firstlineno} in <lambda>"
    with pytest.raises(torchbolt.exc.ConstraintViolationError, match=re.escape(here)):
        torchbolt.compile(fn)(x)


def test_mark_static():
    compiled = torchbolt.compile(pointwise, dynamic=True)
    for n in (4, 5, 6):
        x = torch.randn(n, 8)
        torchbolt.mark_static(x, 0)
        torch.testing.assert_close(compiled(x), pointwise(x))
    assert regions(compiled) == 3


def test_torchs_own_marks():
    compiled = torchbolt.compile(pointwise)
    for n in (4, 5, 9):
        x = torch.randn(n, 8)
        x._dynamo_dynamic_indices = {0}
        torch.testing.assert_close(compiled(x), pointwise(x))
    assert regions(compiled) == 1


def test_random_programs_over_random_sizes():
    """Chains of random steps; each is checked at sizes it was not compiled for."""
    steps = [
        lambda x, r: x * x.size(r),
        lambda x, r: x + torch.arange(x.size(-1)),
        lambda x, r: x.transpose(0, 1),
        lambda x, r: x.flatten(0, 1).unflatten(0, (x.size(0), -1)),
        lambda x, r: x - x.mean(r, keepdim=True),
        lambda x, r: torch.cat([x, x[:1]], 0),
        lambda x, r: x[:, : x.size(1) - 1] if x.size(1) > 4 else x,
        lambda x, r: x.softmax(-1),
        lambda x, r: x[:, :5].sum(1, keepdim=True) + x,
        lambda x, r: x.reshape(x.size(1), -1, x.size(2)),
        lambda x, r: torch.where(x > 0, x, torch.zeros(x.shape[1:])),
        lambda x, r: x.cumsum(0),
        lambda x, r: F.pad(x, (0, 1, 1, 0)),
        lambda x, r: x @ torch.ones(x.size(2), x.size(2)),
        lambda x, r: x.contiguous().view(-1, x.size(2)).view(x.shape),
    ]
    for seed in range(40):
        rng = random.Random(seed)
        chosen = [(rng.choice(steps), rng.randrange(3)) for _ in range(rng.randrange(2, 6))]

        def program(x, chosen=chosen):
            for step, dim in chosen:
                x = step(x, dim)
            return x

        torchbolt.reset()
        compiled = torchbolt.compile(program, dynamic=rng.choice([None, True]), recompile_limit=50)
        for _ in range(7):
            x = torch.randn(rng.randrange(1, 8), rng.randrange(1, 9), rng.choice([6, 6, 7]))
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), program(x), atol=1e-5, rtol=1e-4, msg=lambda m: f"{seed}: {m}")


def test_sizes_that_come_often_get_a_program_of_their_own():
    def fn(x):
        return NORM(LINEAR(x)).softmax(-1), x.shape[1]

    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=True, fullgraph=True)
    often, seldom = torch.randn(3, 7, 16), torch.randn(4, 5, 16)
    with torch.no_grad():
        for n in range(300):
            x = seldom if n % 10 == 0 else often
            (got, length), (want, expected) = compiled(x), fn(x)
            torch.testing.assert_close(got, want)
            assert length == expected
            if n == 200:
                torchbolt.wait()
    stats = torchbolt.stats()
    assert stats["regions"] == 1 and stats["specialized"] == 1


def test_modes_that_are_called_with_sizes_of_their_own():
    """The second is made for all sizes: which of them a later call of either has nobody knows, and one that comes often
    gets its own. Calls in another grad mode or of another dtype are no other sizes of the first."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Dropout(0.5), torch.nn.LayerNorm(24))

        def forward(self, x):
            return self.layers(x).relu()

    def records(calls, net):
        torchbolt.reset()
        compiled = torchbolt.compile(net, fullgraph=True)
        told = ""
        for training, batch, grad, dtype in calls:
            net.train(training).to(dtype)
            x, before = torch.randn(batch, 16, dtype=dtype), torchbolt.stats()["recordings"]
            with torch.set_grad_enabled(grad):
                torch.manual_seed(batch)
                got = compiled(x)
                torch.manual_seed(batch)
                torch.testing.assert_close(got, net(x), atol=1e-5, rtol=1e-4)
            told += "1" if torchbolt.stats()["recordings"] > before else "."
        return told

    single, double = torch.float32, torch.float64
    modes = [
        (t, n, False, single)
        for t, n in ((True, 8), (False, 3), (True, 8), (False, 3), (False, 7), (True, 5), (True, 9))
    ]
    assert records(modes, Net()) == "11...1."
    often = [(True, 8, False, single)] + [(False, 3, False, single)] * 120
    assert records(often, Net()) == "11" + "." * 119
    torchbolt.wait()
    assert torchbolt.stats()["specialized"] == 1
    grad = [(True, 8, True, single), (False, 3, False, single), (False, 3, False, single), (False, 7, False, single)]
    assert records(grad, Net()) == "11.1"
    other = [(False, 8, False, single), (False, 3, False, double), (False, 3, False, double), (False, 7, False, double)]
    assert records(other, Net()) == "11.1"


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_under_gradients(dynamic):
    def fn(x):
        y = F.gelu(LINEAR(x))
        return (y.reshape(x.size(0), -1) * x.size(1)).sum(1), y[:, : x.size(1) // 2]

    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=dynamic, fullgraph=True)
    for b, s in SIZES:
        x = torch.randn(b, s, 16)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        for t, f in ((a, compiled), (b, fn)):
            one, two = f(t)
            (one.sum() + two.pow(2).sum()).backward()
        torch.testing.assert_close(a.grad, b.grad)
    assert torchbolt.stats()["regions"] == (1 if dynamic else 2)


def test_sizes_of_a_tensor_that_nothing_uses():
    """What lies about where a region begins has another size each time; the region computes with other sizes."""

    def program(c):
        picked = c[c > 0.2]  # noqa: F841
        c[1:].mul_(0.5)
        return torch.maximum(c, c), torch.eye(c.shape[-1])

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for seed in range(4):
        torch.manual_seed(seed)
        mine = torch.randn(4, 16)
        theirs = mine.clone()
        for got, want in zip(compiled(mine), program(theirs), strict=True):
            torch.testing.assert_close(got, want)
        assert torch.equal(mine, theirs)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_sizes_that_grow_together():
    """Keys and values of a cache: s0 + 1 and s1 + 1 are equal where s0 and s1 are."""

    def decode(x, keys, values):
        keys, values = torch.cat([keys, x], -2), torch.cat([values, x], -2)
        return F.scaled_dot_product_attention(x, keys, values), keys, values

    compiled = torchbolt.compile(decode)
    with torch.no_grad():
        keys, values = torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
        for _ in range(8):
            x = torch.randn(2, 2, 1, 8)
            want, got = decode(x, keys, values), compiled(x, keys, values)
            torch.testing.assert_close(got, want)
            _, keys, values = got
    assert torchbolt.stats()["recompiles"] == 1


def test_a_divisor_is_a_size_of_what_it_divides():
    """A mask is seen with as many rows as there are tokens' rows: that becomes one size, and all stay symbols."""

    def fn(tokens, mask):
        return tokens.sum() + mask.view(tokens.size(0), -1).cumsum(-1)

    compiled = torchbolt.compile(fn)
    for b, n, m in [(2, 5, 5), (2, 1, 6), (2, 1, 7), (3, 1, 8), (4, 1, 9)]:
        tokens, mask = torch.randn(b, n), torch.randn(b, m)
        torch.testing.assert_close(compiled(tokens, mask), fn(tokens, mask))
    assert regions(compiled) == 2
    tokens, mask = torch.randn(4, 1), torch.randn(2, 6)  # other rows than the tokens: recorded again
    torch.testing.assert_close(compiled(tokens, mask), fn(tokens, mask))
    assert regions(compiled) == 3


def test_a_divisor_among_several_sizes_of_one_number():
    """The size of the same dimension is taken for the divisor."""

    def fn(x, y):
        return y.view(x.size(1), -1) * 2

    compiled = torchbolt.compile(fn, dynamic=True)
    for b, n in [(4, 4), (3, 5), (2, 6)]:
        x, y = torch.randn(b, n), torch.randn(b, n)
        torch.testing.assert_close(compiled(x, y), fn(x, y))
    assert regions(compiled) == 1
