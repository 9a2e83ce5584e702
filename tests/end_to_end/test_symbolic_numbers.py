# tests/end_to_end/test_symbolic_numbers.py
"""Numbers that differ between calls: one program for all of them, eager's results for each.

A row is a function of a tensor and of numbers, and the numbers it is called with; `compiled` is how many recordings
these calls make. Where it is not 2 (the first call, static, and the one that showed what changes) the row says why.
"""

from __future__ import annotations

import collections
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchbolt

FLOATS = [(0.5,), (0.25,), (3.0,), (-1.5,), (1e-3,), (0.5,)]
Pair = collections.namedtuple("Pair", "a b")
INTS = [(3,), (5,), (4,), (7,), (2,), (0,), (1,), (3,)]


def scaled(x, a):
    return x * a + 1


def in_all_places(x, a):
    return a * x, x / a, x - a, a - x, a + x, a / (x.abs() + 1), x + x * a


def alpha(x, a):
    return torch.add(x, x.abs(), alpha=a), torch.sub(x, x, alpha=a)


def in_place(x, a):
    y = x.clone()
    y.mul_(a).add_(x, alpha=-a)
    y.addcmul_(x, x, value=a).addcdiv_(x, x.abs() + 1, value=-a)
    return y


def filled(x, a):
    return torch.full((3, 4), a), torch.full_like(x, a) + x, x.masked_fill(x > 0, a), x.new_full((2,), a)


def compared(x, a):
    return x > a, x.clamp(min=a), torch.where(x < a, x, a), (x == a).sum()


def python_arithmetic(x, a):
    b = (a * 2 - 1) / 3
    return x * b + a**2, x * -a, x + abs(a) * 0.5 + max(a, 0.1)


def python_mathematics(x, a):
    return x * math.sqrt(a * a + 1) + math.cos(a), x * math.exp(-abs(a)), x * math.pi * a


def returned(x, a):
    return x + a, a * 2, [a, (a + 1, "text")], {"a": a - 0.5}


def interpolated(x, a):
    return torch.lerp(x, x * 2, a)


def of_lists(x, a):
    both = [x, x.abs()]
    torch._foreach_addcmul_(changed := [x.clone(), x.clone()], both, both, value=a)
    return (
        torch._foreach_mul(both, a),
        torch._foreach_add(both, both, alpha=a),
        torch._foreach_add(both, [a, 1.0]),
        changed,
    )


def calls_of_aten(x, a):
    return F.leaky_relu(x, a), F.elu(x, a), x.abs() ** a, F.hardtanh(x, -abs(a), abs(a)), F.threshold(x, a, -a)


def powers_and_floors(x, a):
    return abs(a) ** x, x // a, (x.abs() + 0.1) ** a


def made_of_numbers(x, a):
    made = torch.tensor([[a, 1.0], (2, a + 1)])
    made[0, 0] += 1
    return (
        torch.tensor(a) + x,
        made,
        torch.tensor([a], dtype=torch.float64),
        x.new_tensor([a, 2]),
        x.long().new_tensor(a),
    )


def moved_through_lists(x, a):
    items, steps = [], collections.deque([a, 1.0])
    for i in range(4):
        items.insert(0, a + i)
    items.reverse()
    last, first = items.pop(), items.pop(0)
    steps.rotate(1)
    more = items.copy() + [last, steps.popleft()]
    steps.clear()
    return x * first + last, torch.tensor(more), Pair(*items), len(steps)


def reduced(x, a):
    items = [a, 0.5, a * 2]
    return x * sum(items), sum([a, 1], 0.5), max(items) - x, x + min(1, a), sum(items[:1]), max([a])


def as_tensor(x, a):
    return torch.as_tensor(a) * x, torch.as_tensor([a, 2.0], dtype=torch.float64), torch.as_tensor([[a], [1]])


def written_into_a_tensor(x, a):
    y, z = x.clone(), torch.zeros(3, dtype=torch.bfloat16)
    y[0] = a
    y[1:, ::2] = -a
    y[y > 1] = a
    y[torch.tensor([2, 3]), 1] = a * 0.5
    z[...] = a
    return y, z


def other_data(x, a):
    y = torch.tensor([a, True]), torch.tensor([a] * 65), torch.tensor([[]])
    try:
        return y, torch.tensor([[a], [a, a]])
    except ValueError as e:
        return y, str(e)


def index_made_of_a_number(x, p):
    return x.index_copy(0, torch.tensor([p % 6]), x[:1] * 2), torch.tensor([p, 2]) + 1


def decides_a_size(x, a):
    return torch.arange(0, abs(a) + 1, 0.5)


def counter(x, n):
    return x * n, n + 1, x + n * 0.5, x / (n + 1)


def bias_correction(x, n):
    beta = 0.9
    return x / (1 - beta ** (n + 1)), x * math.sqrt(1 - 0.999 ** (n + 1))


def floor_and_remainder(x, n):
    return x * (n // 2), x + n % 3, x * (n << 1), x + (n * n * n - 1)


def negative_int(x, n):
    return x * -n, x + (n - 10), x * abs(n - 4)


def as_index_of_rows(x, n):
    return x[: n + 2].sum(0)


def positions(x, n):
    return torch.arange(n, n + 4) * 2 + x[0, 0].long()


def cast(x, a):
    return x * int(a * 8), x + float(int(a)), x * round(a, 1)


def sizes_and_floats(x, a):
    return x * x.shape[-1] ** -0.5 * a, x / math.sqrt(x.shape[0]) + a


ROWS = [
    (scaled, FLOATS, 2),
    (in_all_places, FLOATS, 2),
    (alpha, FLOATS, 2),
    (in_place, FLOATS, 2),
    (filled, FLOATS, 2),
    (compared, FLOATS, 2),
    (python_arithmetic, FLOATS, 2),
    (python_mathematics, FLOATS, 2),
    (returned, FLOATS, 2),
    (interpolated, FLOATS, 2),
    (of_lists, FLOATS, 2),
    (of_lists, INTS, 2),
    (calls_of_aten, FLOATS, 2),
    (powers_and_floors, FLOATS, 2),
    (made_of_numbers, FLOATS, 2),
    (made_of_numbers, INTS[:5], 2),
    (index_made_of_a_number, INTS, 2),
    (moved_through_lists, FLOATS, 2),
    (moved_through_lists, INTS, 2),
    (reduced, FLOATS, None),  # sums with a start are Python's
    (as_tensor, FLOATS, 2),
    (as_tensor, INTS, 2),
    (written_into_a_tensor, FLOATS, 2),
    (written_into_a_tensor, INTS, 2),
    # Anything but numbers is copied as they are.
    (other_data, FLOATS, 5),
    (decides_a_size, FLOATS[:4], 4),
    (scaled, INTS, 2),
    (in_all_places, INTS[:5], 2),
    (alpha, INTS, 2),
    (filled, INTS, 2),
    (compared, INTS, 2),
    (returned, INTS, 2),
    (counter, INTS, 2),
    (bias_correction, INTS, 2),
    (floor_and_remainder, INTS, 2),
    (negative_int, INTS, 2),
    (positions, INTS, 2),
    (sizes_and_floats, FLOATS, 2),
    # int(a * 8) may turn negative: then it has no symbol, and the program is for that number.
    (cast, FLOATS[:3] + FLOATS[4:], 2),
]


def same(got, want):
    if isinstance(want, torch.Tensor):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            same(got[key], want[key])
    else:
        assert type(got) is type(want) and repr(got) == repr(want)


def run(fn, calls, compiled):
    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True, recompile_limit=32)
    torch.manual_seed(0)
    x = torch.randn(6, 5)
    with torch.no_grad():
        for numbers in calls:
            same(fast(x, *numbers), fn(x, *numbers))
    assert compiled is None or torchbolt.stats()["regions"] == compiled
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize(
    "fn, calls, compiled", ROWS, ids=[f"{r[0].__name__}-{type(r[1][0][0]).__name__}" for r in ROWS]
)
def test_one_program_for_all_numbers(fn, calls, compiled):
    run(fn, calls, compiled)


def test_a_view_that_begins_at_a_number():
    def fn(x, n):
        begins = x[n], x[n:], x[n : n + 2], x.narrow(0, n, 2)
        return *begins, x[:, n], x[..., n], x[None, n, None, n, None], x[1:, None, -n - 1], x[n, n]

    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    x = torch.randn(6, 5)
    for n in (2, 3, 0, 1, 4):
        for got, want in zip(fast(x, n), fn(x, n), strict=True):
            assert got.data_ptr() == want.data_ptr() and got.stride() == want.stride()
            assert torch.equal(got, want)
    assert torchbolt.stats()["regions"] == 2


def kept_from(cache, x, n):
    cache[:, n : n + x.shape[1]] = x


def kept_at(cache, x, n):
    cache[:, n] = x[:, 0]
    cache[n % 2, ..., n] = 1.0


def kept_at_the_end(cache, x, n):
    cache[:, -n - 1] += x[:, 0]


def cleared_until(cache, x, n):
    cache[:, :n] = 0


def kept_beside_tensors(cache, x, n):
    cache[x[:, 0, 0] > 0, n] = 2.0
    cache[None, :, n, torch.tensor([2, 0])] = 3.0


def kept_inside(cache, x, n):
    mine = torch.zeros(2, 12, 8)
    mine[:, n : n + 1] = x
    cache += mine


def kept_by_size(cache, x, n):
    cache[:, : cache.shape[1] // 2] = 0.0
    cache[0, cache.shape[1] // 2] = float(x.shape[2])


WRITES = [kept_from, kept_at, kept_at_the_end, cleared_until, kept_beside_tensors, kept_inside]


@pytest.mark.parametrize("fn", WRITES, ids=lambda f: f.__name__)
def test_writes_at_a_number(fn):
    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    for n in (2, 3, 5, 4, 7, 6):
        x, mine, theirs = torch.randn(2, 1, 8), torch.ones(2, 12, 8), torch.ones(2, 12, 8)
        fast(mine, x, n), fn(theirs, x, n)
        assert torch.equal(mine, theirs)
    assert torchbolt.stats()["regions"] == 2


def test_writes_at_a_size():
    torchbolt.reset()
    fast = torchbolt.compile(kept_by_size, fullgraph=True)
    for n in (4, 6, 9, 12, 7):
        x, mine, theirs = torch.randn(2, 1, 8), torch.ones(2, n, 8), torch.ones(2, n, 8)
        fast(mine, x, n), kept_by_size(theirs, x, n)
        assert torch.equal(mine, theirs)
    assert torchbolt.stats()["regions"] == 2


def test_a_number_past_the_end_is_the_users_error():
    def fn(x, n):
        x[n // 2, :, n] = 1.0
        return x[:, n]

    torchbolt.reset()
    fast = torchbolt.compile(fn)
    for n in (1, 2, 3, 9, -9, 2, 0):
        words = []
        for each in (fast, fn):
            x = torch.zeros(4, 4, 4)
            try:
                words.append((each(x, n).tolist(), x.tolist()))
            except IndexError as error:
                words.append(str(error))
        assert words[0] == words[1]


def test_numbers_inside_a_transform():
    def fn(x, a, n):
        return torch.func.vmap(lambda row: row * a + n)(x), torch.func.grad(lambda t: (t * a).sum())(x)

    run(fn, [(0.5, 2), (0.25, 3), (3.0, 5), (1.0, 4)], 2)


def test_rows_by_number():
    run(as_index_of_rows, [(0,), (1,), (2,), (3,), (1,)], 2)


def test_a_branch_on_the_number_is_a_guard():
    def fn(x, a):
        if a > 1:
            return x * a
        return x - a

    # 0.5 static, 0.25: a <= 1, 3.0: a > 1, and then no more.
    run(fn, [(0.5,), (0.25,), (3.0,), (2.0,), (0.125,), (9.0,)], 3)


def test_every_so_many_steps():
    def fn(x, n):
        return x * n if n % 10 == 0 else x + n

    run(fn, [(n,) for n in range(1, 40)], 3)


def test_texts_of_numbers(capsys):
    """A text that nothing looks at is made of each call's number; one that is looked at is a guard on it."""

    def shown(x, n):
        print(f"step {n}: {n / 4:.2f}", str(n), "%d of {}" % n, "{} of".format(n))
        return x * n, f"layer{n}" + "." + repr(n), ["-".join([str(n), "a"])]

    run(shown, [(n,) for n in range(3, 40)], 2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step 3: 0.75 3 3 of {} 3 of" and lines[::2] == lines[1::2]

    def looked_up(x, n, table):
        return x * table[f"k{n}"]

    run(looked_up, [(n, {"k2": 2.0, "k3": 3.0}) for n in (2, 3, 2, 3)], 2)
    for look in (
        lambda n: len(f"{n}"),
        lambda n: f"{n}" == "4",
        lambda n: f"{n}"[0],
        lambda n: f"{1.5:{n}}",
        lambda n: f"{n:c}",
        lambda n: getattr(torch, f"float{n}", None),
        lambda n: {f"a{n}": 1},
        lambda n: [c for c in f"a{n}"],
        lambda n: list(f"a{n}"),
        lambda n: list(zip(f"a{n}", reversed(f"a{n}"), strict=True)),
    ):
        run(lambda x, n, look=look: (x + n, look(n)), [(n,) for n in (3, 4, 5, 16, 32, 4)], None)


def test_a_number_that_must_be_known_has_programs_of_its_own():
    def fn(x, n):
        return x.sum(n)

    run(fn, [(0,), (1,), (0,), (1,)], 2)


def test_division_by_zero_is_the_users():
    def fn(x, a):
        return x * (1.0 / a)

    torchbolt.reset()
    fast = torchbolt.compile(fn)
    x = torch.randn(3)
    for a in (2.0, 4.0, 5.0):
        torch.testing.assert_close(fast(x, a), fn(x, a))
    with pytest.raises(ZeroDivisionError):
        fast(x, 0.0)
    torch.testing.assert_close(fast(x, 8.0), fn(x, 8.0))
    assert torchbolt.stats()["regions"] == 2


def test_large_and_negative_ints():
    def fn(x, n):
        return x + n % 7, n + 1

    # One static, one for ints that have a symbol, one for those that have none.
    run(fn, [(3,), (5,), (-4,), (2**40,), (2**70,), (-9,), (8,)], 3)


def test_types_are_told_apart():
    def fn(x, a):
        return x * a

    # 2, any int, any float (that the number changes is known by then), True.
    run(fn, [(2,), (3,), (2.0,), (3.0,), (True,), (4,), (4.0,)], 4)


def test_counter_on_a_module():
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.step, self.rate = 0, 0.1

        def forward(self, x):
            self.step += 1
            self.rate *= 0.9
            return x * self.rate + self.step

    torchbolt.reset()
    eager, fast = Steps().eval(), torchbolt.compile(Steps().eval(), fullgraph=True)
    x = torch.randn(4)
    with torch.no_grad():
        for _ in range(50):
            same(fast(x), eager(x))
            assert (fast.step, fast.rate) == (eager.step, eager.rate)
    assert torchbolt.stats()["regions"] == 2


def test_super_with_arguments_reads_no_numbers():
    """What 3.12 makes of every super().__setattr__(...)."""

    class Steps:
        def __init__(self):
            self.step, self.rate = 0, 0.1

        def __setattr__(self, name, value):
            super(Steps, self).__setattr__(name, value)

        def forward(self, x):
            self.step += 1
            self.rate *= 0.9
            return x * self.rate + self.step

    torchbolt.reset()
    eager, steps = Steps(), Steps()
    fast = torchbolt.compile(steps.forward, fullgraph=True)
    x = torch.randn(4)
    with torch.no_grad():
        for _ in range(10):
            same(fast(x), eager.forward(x))
            assert (steps.step, steps.rate) == (eager.step, eager.rate)
    assert torchbolt.stats()["regions"] == 2


def test_global_and_closure_numbers():
    total = 0.5

    def fn(x):
        nonlocal total
        total = total * 1.5
        return x * total

    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    x = torch.randn(4)
    expect = 0.5
    for _ in range(6):
        expect *= 1.5
        same(fast(x), x * expect)
    assert total == expect
    assert torchbolt.stats()["regions"] == 2


def test_keyword_and_nested_numbers():
    def fn(x, *, options):
        return x * options["scale"] + options["shift"][1]

    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    x = torch.randn(4)
    for i in range(6):
        options = {"scale": 0.5 + i, "shift": [0, i * 0.25]}
        same(fast(x, options=options), fn(x, options=options))
    assert torchbolt.stats()["regions"] == 2


def test_numbers_and_sizes_change_together():
    def fn(x, a, n):
        return F.gelu(x * a)[:, : n + 2] / x.shape[0]

    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    for b, a, n in [(3, 0.5, 2), (4, 0.25, 3), (7, 2.0, 4), (5, -1.0, 5), (9, 0.0, 3)]:
        x = torch.randn(b, 8)
        same(fast(x, a, n), fn(x, a, n))
    assert torchbolt.stats()["regions"] == 2


def test_with_gradients():
    def fn(x, a, n):
        return (x * a).sum() + n * x.mean()

    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    for a, n in [(0.5, 3), (0.25, 4), (2.0, 5), (-1.0, 6)]:
        x, y = (torch.linspace(0, 1, 6).requires_grad_() for _ in range(2))
        fast(x, a, n).backward()
        fn(y, a, n).backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert torchbolt.stats()["regions"] == 2


def test_never_when_dynamic_is_off():
    torchbolt.reset()
    fast = torchbolt.compile(scaled, dynamic=False, recompile_limit=32)
    x = torch.randn(3)
    for a in (0.5, 0.25, 3.0):
        same(fast(x, a), scaled(x, a))
    assert torchbolt.stats()["regions"] == 3


def test_from_the_start_when_dynamic_is_on():
    torchbolt.reset()
    fast = torchbolt.compile(scaled, dynamic=True)
    x = torch.randn(3)
    for a in (0.5, 0.25, 3.0):
        same(fast(x, a), scaled(x, a))
    assert torchbolt.stats()["regions"] == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("numbers", [(0.3, 0.7, 2.6), (3, 2, 5)], ids=["floats", "ints"])
def test_promotion(dtype, numbers):
    def fn(x, a):
        return x * a, x + a, x / a, x - a

    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True)
    x = (torch.arange(12) - 4).to(dtype)
    for a in numbers:
        for got, want in zip(fast(x, a), fn(x, a), strict=True):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)
    assert torchbolt.stats()["regions"] == 2


def test_a_named_range_of_the_profiler():
    def fn(x):
        with torch.profiler.record_function("part"):
            y = x * 2
        return y + 1

    run(fn, [()], 1)


@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RMSprop", "Adadelta", "Adagrad"])
def test_optimizer_with_a_schedule(kind, foreach):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        options = {"momentum": 0.9, "weight_decay": 0.01} if kind == "SGD" else {"weight_decay": 0.01}
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05, foreach=foreach, **options)
        return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)

    def train(step, model, optimizer, schedule, inputs):
        for x in inputs:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            step()
            schedule.step()

    torchbolt.reset()
    inputs = list(torch.randn(40, 8, 4))
    eager, fast = make(), make()
    train(eager[1].step, *eager, inputs)
    step = torchbolt.compile(fast[1].step)
    train(step, *fast, inputs[:4])
    regions = torchbolt.stats()["regions"]
    train(step, *fast, inputs[4:])
    for a, b in zip(eager[0].parameters(), fast[0].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    stats = torchbolt.stats()
    assert stats["regions"] == regions <= 4 and stats["eager_fallbacks"] == 0


def test_a_number_from_the_size_of_a_tensor_made_inside():
    """What is computed from it waits for the size's expression over the arguments."""

    def fn(x):
        both = torch.cat([x, x], 1)
        return both / math.sqrt(both.size(1)), x * (1 / math.sqrt(torch.empty(3, 5).size(1)))

    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=True)
    with torch.no_grad():
        for n in (4, 5, 9):
            x = torch.rand(3, n)
            torch.testing.assert_close(compiled(x), fn(x))
    assert torchbolt.stats()["regions"] == 1 and torchbolt.stats()["eager_fallbacks"] == 0


def test_a_slice_that_was_all_of_it():
    """What is cut off later lies in the memory of the whole: its strides are the whole's."""

    def fn(x, n):
        return F.gelu(x).reshape(x.shape)[max(n - 1, 0) :]

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for n in (5, 4, 5, 0, 4, 2):
            x = torch.randn(6, 8).t()
            got, want = compiled(x, n), fn(x, n)
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()


def test_a_range_that_ends_before_it_starts():
    """Recorded as empty, where nothing reads it: the error is eager's all the same."""

    def fn(x, n):
        torch.arange(x.shape[0] - n)
        return x * n

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.ones(5)
    with torch.no_grad():
        for n in (4, 5):  # the second, for all n, is the empty one
            torch.testing.assert_close(compiled(x, n), fn(x, n))
        for n in (6, 9):
            with pytest.raises(RuntimeError, match="bound"):
                compiled(x, n)


OVERFLOWING = (
    "torch.full_like(u, k)", "u.clone().fill_(k)", "u + k", "u.masked_fill(u == 0, k)", "torch.where(u == 0, k, u)", "u.clone().mul_(k)",
    "u.clamp(max=k)", "torch.full((2,), k, dtype=torch.int8)", "u == k", "F.pad(u, (1, 1), value=k)", "u.new_full((2,), k)",
    "u.clone().__setitem__(0, k)", "u.masked_fill(u == 0, torch.tensor(k).item())",
)  # fmt: skip


@pytest.mark.parametrize("text", OVERFLOWING)
def test_numbers_that_do_not_fit(text):
    """Eager raises where a number does not fit into integers of one byte; so do later calls."""
    fn = eval(f"lambda u, k: {text}", {"torch": torch, "F": torch.nn.functional})
    for numbers in ((2, 3, -1, 300, 4, -200), (2, 3, 4, 70000, 5), (2.0, 2.5, -1.5, 300.5, 3.0)):
        compiled = torchbolt.compile(fn)
        for k in numbers:
            results = []
            for call in (fn, compiled):
                try:
                    results.append(call(torch.zeros(3, dtype=torch.uint8), k))
                except RuntimeError as error:
                    assert not isinstance(error, torchbolt.exc.TorchboltError)
                    results.append("raises")
            want, got = results
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want, (k, want, got)


def taken_apart(x, p):
    a, b = p
    first, *rest = p
    return x * a + b, x * first + rest[0]


def looped_over(x, p):
    for a in p:
        x = x * a
    return x + sum(p)


def counted_through(x, p):
    for i, a in enumerate(p):
        x = x * a + i
    return x


def as_a_size(x, p):
    return x.new_ones(p), torch.zeros(*p) + 1, x[0, :1].expand(p)


def handed_on(x, p):
    return as_a_size(x, p)[0] * p[0], p, [p]


def compared_with_a_tuple(x, p):
    return x + 1 if tuple(p) == (3, 2) else x * p[0]


def kept(x, p):
    holder = {"size": p, "pair": (p, 1)}
    return x * holder["size"][0] + holder["pair"][0][1]


@pytest.mark.parametrize("kind", [tuple, list, torch.Size], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "fn", [taken_apart, looped_over, counted_through, as_a_size, handed_on, compared_with_a_tuple, kept]
)
def test_numbers_in_a_sequence(fn, kind):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3, 4)
    for n in (2, 5, 4, 7, 3, 9):
        p = kind((n, 2))
        expected, got = fn(x, p), compiled(x, p)
        torch.testing.assert_close(got, expected)
        if fn is handed_on:
            assert got[1] is p and got[2][0] is p
    recompiles = 2 if fn is compared_with_a_tuple else 1
    assert torchbolt.stats()["recompiles"] == recompiles


@pytest.mark.parametrize("count", [8, 9, 64])
def test_many_numbers_of_one_sum(count):
    def fn(x, w):
        return x * sum(w) + max(w)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4)
    for n in range(5):
        w = tuple(0.25 * n + i for i in range(count))
        torch.testing.assert_close(compiled(x, w), fn(x, w))
    assert torchbolt.stats()["recompiles"] == 1


def test_numbers_in_nested_tuples_and_slices():
    def fn(x, p, s):
        (a, (b, c)), d = p
        return x * a + b * c - d, x[s]

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(30)
    for n in (2, 5, 4, 7, 9):
        p, s = ((n, (0.5, n + 1)), n * 0.5), slice(1, n)
        torch.testing.assert_close(compiled(x, p, s), fn(x, p, s))
    assert torchbolt.stats()["recompiles"] == 1


def test_a_list_is_written_while_it_is_read():
    def fn(x, p):
        for a in p:
            if a < 100:
                p.append(a + 100)
            x = x * a
        return x

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4)
    for n in (2, 5, 4, 7, 9, 3):
        mine, theirs = [n, 1.5], [n, 1.5]
        torch.testing.assert_close(compiled(x, mine), fn(x, theirs))
        assert mine == theirs


def test_a_loop_with_a_counter_after_the_end_of_a_region():
    def fn(x, flags):
        for i, flag in enumerate(flags):
            x = x + i
            if flag:
                x = x.relu()
        return x

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x, flags = torch.randn(4), torch.rand(24) < 0.5
    for _ in range(3):
        torch.testing.assert_close(compiled(x, flags), fn(x, flags))
    assert torchbolt.stats()["eager_fallbacks"] == 0
    assert torchbolt.stats()["recompiles"] <= 2


def test_numbers_in_defaults_are_read_by_the_call():
    """The tuple of defaults is guarded, not followed: binding arguments reads it."""

    def fn(x, f):
        return f(x)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4)
    for n in (2, 5, 4, 7):

        def scale(t, by=n):
            return t * by

        torch.testing.assert_close(compiled(x, scale), scale(x))


def test_counters_in_lists_and_classes():
    counts = [0, 0.5, 7]

    class Counter:
        n = 0

    def in_list(x):
        counts[0] += 1
        counts[1] *= 2
        return x * counts[0] + len(counts), list(counts)

    def in_class(x):
        Counter.n += 1
        return x * Counter.n

    for fn, regions in ((in_list, 3), (in_class, 3)):
        torchbolt.reset()
        compiled = torchbolt.compile(fn)
        x = torch.randn(4)
        for n in range(12):
            state = list(counts), Counter.n
            want = fn(x), list(counts), Counter.n
            counts[:], Counter.n = state
            got = compiled(x), list(counts), Counter.n
            torch.testing.assert_close(got, want)
        stats = torchbolt.stats()
        assert stats["regions"] <= regions and stats["eager_fallbacks"] == 0, stats


def test_counters_that_dicts_are_asked_for():
    """pop and setdefault give a number as a subscript does."""

    def set_default(state, x):
        state.setdefault("n", 0)
        state["n"] += 1
        return x * state["n"]

    def given(state, x):
        state["n"] = state.setdefault("n", 0) + 1
        return x * state["n"], state.setdefault("m", 7)

    def popped(state, x):
        state["n"] = state.pop("n", 0) + 1
        return x * state["n"]

    def gone(state, x):
        n = state.pop("n", 0) + 1
        y = x * n, "n" in state, len(state)
        state["n"] = n
        return y

    for fn in (set_default, given, popped, gone):
        torchbolt.reset()
        compiled, ours, theirs, x = torchbolt.compile(fn), {}, {}, torch.randn(4)
        for _ in range(10):
            torch.testing.assert_close(compiled(ours, x), fn(theirs, x))
            assert list(ours.items()) == list(theirs.items())
        stats = torchbolt.stats()
        assert stats["recordings"] == 3 and stats["eager_fallbacks"] == 0, stats
