# tests/training/test_trials_with_passes.py
"""Programs with backward passes are measured beside eager in their first calls, and those that are slower are given up.

An operator of the user's is slow here wherever the program runs it, in either direction: without gradients forward, and in
a node of ours backward. Each call must be right, and done once, whoever answers it.
"""

from __future__ import annotations

import time

import pytest
import torch
from leaves import leaf

import torchbolt

RAN = []  # what ran the slow operators
SLOW = {}  # seconds, by direction and who runs it


def ran(direction, who):
    RAN.append((direction, who))
    time.sleep(SLOW.get((direction, who), 0.001))


@torch.library.custom_op("beside_eager::note_forward", mutates_args=())
def note_forward(x: torch.Tensor) -> torch.Tensor:
    ran("forward", "eager" if torch.is_grad_enabled() else "program")
    return x + 1


@torch.library.custom_op("beside_eager::note_backward", mutates_args=())
def note_backward(g: torch.Tensor) -> torch.Tensor:
    node = torch._C._current_autograd_node()
    ran("backward", "program" if node is None or "Torchbolt" in node.name() else "eager")
    return g * 2


@torch.library.custom_op("beside_eager::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


for op in (note_forward, note_backward, doubled):
    op.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, g: note_backward(g))


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    torchbolt.reset()
    RAN.clear()
    SLOW.clear()
    monkeypatch.setenv("TORCHBOLT_CACHE", "0")


def region_of(compiled):
    (region,) = torchbolt.api.compiled_of(compiled)._regions()
    return region


def until_settled(compiled, call, most=80):
    """Calls it until nothing is tried any more; how many calls that took."""
    for count in range(1, most):
        call(count)
        torchbolt.wait()
        if not region_of(compiled)["is_trial"]:
            return count
    raise AssertionError("the trial has no end")


def both_ways(x, w):
    return doubled((x @ w).tanh()).exp() * note_forward(x.detach())


def checked(compiled, fn=both_ways, directions=("forward", "backward")):
    def call(count):
        x, w = leaf(16, 8), leaf(8, 8)
        RAN.clear()
        y = compiled(x, w)
        got = [y, *torch.autograd.grad(y.sum(), (x, w))]
        assert [direction for direction, _ in RAN] == list(directions)  # once
        y = fn(x, w)
        torch.testing.assert_close(got, [y, *torch.autograd.grad(y.sum(), (x, w))])

    return call


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_program_that_is_slow_in_either_direction_is_given_to_eager(direction):
    SLOW[direction, "program"] = 0.15
    compiled = torchbolt.compile(both_ways, options={"measure": True})
    call = checked(compiled)
    assert until_settled(compiled, call) <= 20
    region = region_of(compiled)
    assert not region["compiled"] and "faster: the program takes" in region["why_replayed"]
    assert "with its backward pass" in region["why_replayed"]
    stats = torchbolt.stats()
    assert (stats["measured"], stats["slower_than_eager"], stats["eager_fallbacks"]) == (1, 1, 1)
    assert (stats["recordings"], stats["planned_again"]) == (1, 0)
    call(0)
    compiled(leaf(16, 8), leaf(8, 8)).sum().backward()
    assert RAN[-2:] == [("forward", "eager"), ("backward", "eager")]


def test_a_fast_program_stays():
    SLOW.update({("forward", "eager"): 0.02, ("backward", "eager"): 0.02})
    compiled = torchbolt.compile(both_ways, options={"measure": True})
    assert until_settled(compiled, checked(compiled)) <= 10
    region = region_of(compiled)
    assert region["compiled"] and "with its backward pass, eager" in region["measured"]
    assert torchbolt.stats()["measured"] == 1 and not torchbolt.stats()["slower_than_eager"]


def test_several_calls_may_be_under_way():
    SLOW["backward", "program"] = 0.15
    compiled = torchbolt.compile(both_ways, options={"measure": True})

    def layers(f, x, weights):
        for w in weights:
            x = f(x, w).tanh()
        return x

    def call(count):
        x, weights = leaf(16, 8), [leaf(8, 8) for _ in range(3)]
        wanted = (x, *weights)
        got = torch.autograd.grad(layers(compiled, x, weights).sum(), wanted)
        torch.testing.assert_close(got, torch.autograd.grad(layers(both_ways, x, weights).sum(), wanted))

    until_settled(compiled, call)
    assert not region_of(compiled)["compiled"] and torchbolt.stats()["recordings"] == 1


def test_programs_whose_passes_do_not_come_stay():
    compiled = torchbolt.compile(both_ways, options={"measure": True})
    x, w = leaf(16, 8), leaf(8, 8)
    until_settled(compiled, lambda count: torch.testing.assert_close(compiled(x, w), both_ways(x, w)))
    assert region_of(compiled)["compiled"] and "no backward passes came" in region_of(compiled)["measured"]


def test_passes_that_come_twice_or_are_differentiated():
    def penalised(x, w):
        return (x @ w).tanh().exp() * note_forward(x.detach())

    SLOW["forward", "program"] = 0.15
    compiled = torchbolt.compile(penalised, options={"measure": True})

    def gradients(f, x, w, twice):
        y = f(x, w).square()
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=twice, retain_graph=True)
        return torch.autograd.grad(g.square().sum() if twice else y.sum(), (x, w))

    def call(count):
        x, w = leaf(16, 8), leaf(8, 8)
        got = gradients(compiled, x, w, count % 3 == 0)
        torch.testing.assert_close(got, gradients(penalised, x, w, count % 3 == 0), rtol=1e-4, atol=1e-4)

    until_settled(compiled, call)
    assert not region_of(compiled)["compiled"]


def test_what_the_trial_of_a_whole_step_came_to_is_seen():
    w = leaf(8, 8)
    optimizer = torch.optim.SGD([w], lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = ((x @ w).tanh() * note_forward(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled, x = torchbolt.compile(step, options={"measure": True}), torch.randn(16, 8)
    step(x)  # from now on there are gradients to be dropped

    def call(count):
        before = w.detach().clone()
        got = compiled(x)
        after = w.detach().clone()
        with torch.no_grad():
            w.copy_(before)
        torch.testing.assert_close([got, after], [step(x), w.detach()])

    until_settled(compiled, call)
    assert region_of(compiled)["compiled"] and ", eager " in region_of(compiled)["measured"]


def test_nothing_is_tried_where_the_order_of_passes_counts_or_sizes_differ():
    compiled = torchbolt.compile(both_ways, dynamic=True, options={"measure": True})
    compiled(leaf(16, 8), leaf(8, 8))
    assert not region_of(compiled)["is_trial"]
