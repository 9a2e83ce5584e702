# tests/end_to_end/test_region_ends.py
"""Regions end at what cannot be compiled and begin again after it: results, order of effects, and no recompiling."""

from __future__ import annotations

import copy
import io
import random
import time
import typing

import pytest
import torch
from torch import nn

import torchbolt


def check(fn, *inputs, regions_settle=True):
    """fn on every input, compiled, gives eager's results; after two rounds nothing is recorded any more."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    before = {}
    for round_ in range(4):
        if round_ == 2:
            before = torchbolt.stats()
        for args in inputs:
            with torch.no_grad():
                want, got = fn(*[a.clone() for a in args]), compiled(*[a.clone() for a in args])
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    after = torchbolt.stats()
    if regions_settle:
        assert after["regions"] == before["regions"] and after["graph_breaks"] == before["graph_breaks"]
    assert after["eager_fallbacks"] == 0
    return after


def positive_and_negative(n=8):
    torch.manual_seed(0)
    return [(torch.rand(n) + 0.1,), (-torch.rand(n) - 0.1,)]


def test_print_keeps_its_place(capsys):
    def fn(x):
        print("before")
        y = x * 2
        print("between", tuple(y.shape))
        return y + 1

    with torchbolt.config.patch(delay_logging=False):
        stats = check(fn, (torch.randn(4),))
    assert stats["break_reasons"]["calls builtins.print"] >= 2
    assert capsys.readouterr().out.split() == ["before", "between", "(4,)"] * 8
    assert check(fn, (torch.randn(4),))["graph_breaks"] == 0
    assert capsys.readouterr().out.split() == ["before", "between", "(4,)"] * 8


def test_both_sides_of_a_branch_are_compiled():
    def fn(x):
        y = x * 2
        if y.sum() > 0:
            return torch.relu(y) + 1
        return torch.exp(y) - 1

    check(fn, *positive_and_negative())


def test_while_loop_on_a_tensor():
    def fn(x):
        steps = 0
        while x.abs().max() > 0.05:
            x = x * 0.5
            steps = steps + 0
        return x, steps

    check(fn, (torch.rand(8) + 1,))


def test_break_in_a_nested_call_in_a_loop():
    def inner(x, out):
        y = torch.tanh(x)
        out.append(float(y.sum()))
        return y * 2

    def fn(x):
        out = []
        for i in range(3):
            x = inner(x, out) + i
        return x, out

    check(fn, (torch.randn(5),))


def test_item_feeds_python():
    def fn(x):
        k = int(x.argmax())
        return x * k

    check(fn, (torch.tensor([1.0, 5.0, 2.0]),))


def test_with_blocks_and_grad_mode():
    def fn(x):
        with torch.no_grad():
            y = x * 3
            time.clock_gettime(0)
            z = y + 1
        return z * 2, torch.is_grad_enabled()

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(4)
    for _ in range(4):
        got, mode = compiled(x)
        torch.testing.assert_close(got, fn(x)[0])
        assert mode and torch.is_grad_enabled()
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_try_and_finally_around_a_break():
    def fn(x):
        log = []
        try:
            y = x + 1
            time.clock_gettime(0)
            if bool(y.sum() > 1e9):
                raise ValueError("large")
            y = y * 2
        except ValueError:
            y = x
        finally:
            log.append(1)
        return y, len(log)

    check(fn, (torch.randn(4),))


def test_an_exception_after_a_break_is_the_users():
    def fn(x):
        y = x + 1
        time.clock_gettime(0)
        raise KeyError(f"bad {y.shape[0]}")

    compiled = torchbolt.compile(fn)
    for _ in range(3):
        with pytest.raises(KeyError, match="bad 4") as caught, torch.no_grad():
            compiled(torch.randn(4))
        assert caught.traceback[-1].name == "fn" and caught.traceback[-1].lineno + 1 == fn.__code__.co_firstlineno + 3


def test_files_and_outside_objects():
    class Counter:
        calls = 0

    counter = Counter()

    def fn(x):
        file = io.StringIO()
        y = x * 2
        counter.calls += 1
        file.write(str(tuple(y.shape)))
        counter.calls += 1
        return y + len(file.getvalue())

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3)
    with torch.no_grad():
        for i in range(6):
            before = counter.calls
            torch.testing.assert_close(compiled(x), x * 2 + 4)
            assert counter.calls == before + 2, i


def test_views_and_aliases_survive_a_break():
    def fn(x):
        y = x * 2
        row = y[0]
        time.clock_gettime(0)
        row.add_(1)
        return y, row

    check(fn, (torch.randn(3, 4),))
    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for _ in range(3):
            y, row = compiled(torch.randn(3, 4))
            assert y.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()


def test_a_module_with_a_break():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

        def forward(self, x):
            x = torch.relu(self.first(x))
            time.clock_gettime(0)
            return self.second(x)

    torch.manual_seed(0)
    net = Net()
    torchbolt.reset()
    compiled = torchbolt.compile(net)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 4)
            torch.testing.assert_close(compiled(x), net(x))
    stats = torchbolt.stats()
    assert stats["regions"] == 2 and stats["eager_fallbacks"] == 0
    seen = torchbolt.explain(net)(torch.randn(3, 4))
    assert seen.graph_count == 2 and seen.graph_break_count == 1
    assert "time" in seen.break_reasons[0].reason


def test_context_variables_across_a_break():
    import contextvars

    variable = contextvars.ContextVar("variable", default=None)

    def fn(x):
        token = variable.set({"scale": 3})
        try:
            y = x + 1
            time.clock_gettime(0)
            return y * variable.get()["scale"]
        finally:
            variable.reset(token)

    check(fn, (torch.randn(4),))
    assert variable.get() is None


def test_fullgraph_names_the_line():
    def fn(x):
        y = x * 2
        time.clock_gettime(0)
        return y

    with pytest.raises(torchbolt.exc.GraphBreak, match=r"time[\s\S]*test_region_ends.py"), torch.no_grad():
        torchbolt.compile(fn, fullgraph=True)(torch.randn(3))


def test_super_without_arguments_behind_an_end():
    """super() reads its first argument out of the frame, which no instruction shows."""

    class Base(torch.nn.Module):
        def run(self, *args):
            return self.layer(*args)

    class Derived(Base):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(2, 2), []

        def run(self, *args):
            if not all(torch.equal(a, b) for a, b in zip(self.seen, args)):
                raise RuntimeError("other inputs")
            return super().run(*args)

    module = Derived()

    def fn(x):
        module.seen = (x,)
        return module.run(x) * 2

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for _ in range(4):
            x = torch.rand(4, 2)
            torch.testing.assert_close(compiled(x), fn(x))


def test_places_that_compute_nothing_are_not_recorded_for_ever():
    """Behind these ends lie loops of Python alone, whose values differ each time: no limit is met, and nothing said."""
    layer = nn.Linear(2, 2)

    def shuffled(x):
        items = [1, 2, 3, 4]
        random.shuffle(items)
        return x * 2, sum(items)

    def copied(x):
        return copy.deepcopy(layer)(x)

    # The copy's parameters are made inside, and gradients of what is made inside are eager's.
    for fn, calls, fallbacks in ((shuffled, 24, 0), (copied, 6, 1)):
        torchbolt.reset()
        compiled = torchbolt.compile(fn)
        for _ in range(calls):
            torch.testing.assert_close(compiled(torch.ones(2)), fn(torch.ones(2)))
        assert torchbolt.stats()["eager_fallbacks"] == fallbacks


def test_ends_that_one_module_needs_are_no_ends_of_another():
    class Traced(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))

        def forward(self, x):
            return self.inner(x) * 2

    def graph_breaks(module):
        before = torchbolt.stats()["graph_breaks"]
        compiled = torchbolt.compile(module)
        with torch.no_grad():
            for rows in (2, 2, 3, 3):
                x = torch.ones(rows, 4)
                torch.testing.assert_close(compiled(x), module(x))
        return torchbolt.stats()["graph_breaks"] - before

    torchbolt.reset()
    assert graph_breaks(Traced()) > 0
    assert graph_breaks(nn.Sequential(nn.Linear(4, 4), nn.ReLU())) == 0


@pytest.mark.parametrize(
    "how", [lambda y, x: y.backward(), lambda y, x: torch.autograd.grad(y, x)], ids=["backward", "grad"]
)
def test_gradients_are_no_end(how):
    def fn(x):
        y = (x * x).sum()
        found = how(y, x)
        return x.detach() * 2, found

    torchbolt.reset()
    x = torch.ones(3, requires_grad=True)
    assert torchbolt.explain(fn)(x).graph_break_count == 0
    compiled = torchbolt.compile(fn)
    for n in range(3):
        x = torch.full((3,), float(n), requires_grad=True)
        want, got = fn(x), compiled(x)
        assert torch.equal(got[0], want[0]) and repr(got[1]) == repr(want[1])


def test_a_gradient_that_is_left_with_its_history_is_one_end():
    def fn(x):
        (x * x).sum().backward(create_graph=True)
        return x.detach() * 2, x.grad.detach()

    torchbolt.reset()
    report = torchbolt.explain(fn)(torch.ones(3, requires_grad=True))
    assert report.graph_break_count == 1 and "torch's autograd computes" in report.break_reasons[0].hint
    compiled = torchbolt.compile(fn)
    for n in range(3):
        x = torch.full((3,), float(n), requires_grad=True)
        assert all(map(torch.equal, compiled(x), fn(x.detach().requires_grad_())))


def test_a_cached_function_of_classes_with_arguments():
    def fn(x):
        return x * len(typing.get_args(typing.Union[list[int], tuple[torch.Tensor], None]))  # noqa: UP007

    torchbolt.reset()
    compiled, x = torchbolt.compile(fn, fullgraph=True), torch.ones(3)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x * 3)
    assert torchbolt.stats()["regions"] == 1
