# tests/training/test_step_state.py
"""A compiled step happens or does not: without memory, and when somebody presses Ctrl-C, there is nothing between."""

import re
import signal

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import torchbolt
from torchbolt import _C, api


@pytest.fixture(autouse=True)
def memory_again():
    yield
    _C._fail_allocation(-1)


def made(norm=nn.LayerNorm, clip=True, keeps=False):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 48), norm(48), nn.GELU(), nn.Dropout(0.2), nn.Linear(48, 4))
    opt = torch.optim.AdamW(model.parameters(), 0.01)

    def step(x, y):
        if keeps:
            opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if not keeps:
            opt.zero_grad()
        return loss.detach(), out.detach().argmax(-1), out.detach()[0]

    return step, (model, opt)


def state_of(parts):
    found = []
    for part in parts:
        found += pytree.tree_leaves(part.state_dict())
        if isinstance(part, nn.Module):
            found += [p.grad for p in part.parameters()]
    found.append(torch.get_rng_state())
    return [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in found]


def equal(a, b):
    return all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x == y
        for x, y in zip(a, b, strict=True)
    )


def batch(i=0, size=8):
    draw = torch.Generator().manual_seed(i)
    return torch.randn(size, 16, generator=draw), torch.randint(0, 4, (size,), generator=draw)


STEPS = {
    "clipped": lambda: made(),
    "plain": lambda: made(clip=False),
    "batch_norm": lambda: made(nn.BatchNorm1d),
    "gradients_stay": lambda: made(keeps=True),
}


@pytest.mark.parametrize("name", STEPS)
def test_no_memory_at_any_place(name):
    """Memory runs out at each allocation of a step. What is left is what was there, and the loop can go on."""
    step, parts = STEPS[name]()
    step = torchbolt.compile(step)
    for i in range(4):
        step(*batch(i))
    assert torchbolt.stats()["graph_breaks"] == 0
    x, y = batch(7)
    failures = 0
    for place in range(1000):
        before = state_of(parts)
        _C._fail_allocation(place)
        try:
            step(x, y)
        except RuntimeError as error:
            _C._fail_allocation(-1)
            assert "can't allocate memory" in str(error)
            assert equal(state_of(parts), before), f"allocation {place} left a step half done"
            failures += 1
        else:
            _C._fail_allocation(-1)
            break
    assert failures
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["eager_fallbacks"]) == (2, 0)
    assert all(torch.isfinite(step(*batch(i))[0]) for i in range(3))


def test_who_catches_it_inside_goes_on_otherwise():
    """The program says what happens without memory: its own `except` runs."""

    def run(wrap, at):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(16, 4))
        opt = torch.optim.SGD(model.parameters(), 0.1)
        skipped = []

        def step(x, y):
            opt.zero_grad()
            try:
                F.cross_entropy(model(x), y).backward()
            except RuntimeError:
                skipped.append(1)
                return
            opt.step()

        step = wrap(step)
        for i in range(5):
            x, y = batch(i)
            if i == 3:
                _C._fail_allocation(at)
            step(x, y)
            _C._fail_allocation(-1)
        return len(skipped), [p.detach().clone() for p in model.parameters()]

    ours, eager = run(torchbolt.compile, 1), run(lambda step: step, 1)
    assert ours[0] == eager[0] == 1
    torch.testing.assert_close(ours[1], eager[1])


@pytest.mark.parametrize("name", ["clipped", "batch_norm"])
def test_interrupts_come_before_a_step_or_after_it(name):
    """A timer rings at all kinds of moments. The states that are met are those of whole steps."""
    x, y = batch()

    def states(n):
        step, parts = STEPS[name]()
        step = torchbolt.compile(step)
        for i in range(4):
            step(*batch(i))
        found = [state_of(parts)]
        for _ in range(n):
            step(x, y)
            found.append(state_of(parts))
        return found

    n = 60
    whole = states(n)
    step, parts = STEPS[name]()
    step = torchbolt.compile(step)
    for i in range(4):
        step(*batch(i))

    def ring(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    at = interrupted = 0
    try:
        for i in range(2000):
            if at == n:
                break
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + (i % 40) * 2e-5)
                step(x, y)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupted += 1
            now = state_of(parts)
            if not equal(now, whole[at]):
                at += 1
                other = [i for i, (a, b) in enumerate(zip(now, whole[at])) if not equal([a], [b])]
                told = f"tensors {other} of {len(now)} differ; {torchbolt.stats()}"
                assert not other, f"an interrupt came in the middle of step {at}: {told}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted and at


@torch.library.custom_op("torchbolt_tests::stops", mutates_args=())
def stops(x: torch.Tensor) -> torch.Tensor:
    if presses:
        raise presses.pop()
    return x.clone()


@stops.register_fake
def _(x):
    return torch.empty_like(x)


presses = []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_operator_of_pythons_is_interrupted(error):
    torch.manual_seed(1)
    model = nn.Linear(16, 4)
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(F.dropout(x, 0.2)), y)
        loss.backward()
        opt.step()
        return stops(loss.detach())

    step = torchbolt.compile(step)
    for i in range(4):
        step(*batch(i))
    before = state_of([model, opt])
    presses.append(error())
    with pytest.raises(error):
        step(*batch(5))
    assert equal(state_of([model, opt]), before)
    step(*batch(5))


# ---- what a step keeps


def last_plan(step):
    return api.compiled_of(step)._regions()[-1]["plan"]


def test_gradients_that_nobody_sees_are_not_made():
    """A gradient is an output of the program only where somebody may look at it afterwards."""
    outputs = {}
    for keeps in (False, True):
        torchbolt.reset()
        step, (model, _) = made(keeps=keeps)
        step = torchbolt.compile(step)
        for i in range(4):
            step(*batch(i))
        outputs[keeps] = len(re.findall(r"^ +b\d+ = output ", last_plan(step), re.M))
        parameters = len(list(model.parameters()))
    assert outputs[True] - outputs[False] == parameters, outputs


def test_the_last_batch_is_a_step_of_its_own():
    def run(wrap):
        step, parts = made()
        step = wrap(step)
        torch.manual_seed(3)
        for i in range(12):
            step(*batch(i, 5 if i % 4 == 3 else 8))
        return state_of(parts)

    eager = run(lambda step: step)
    torchbolt.reset()
    torch.testing.assert_close(run(torchbolt.compile), eager, rtol=2e-5, atol=2e-5)
    assert torchbolt.stats()["graph_breaks"] == 0


def test_a_third_size_makes_a_program_for_all():
    """What is recorded again for other reasons, as the first step is, is no size of its own."""

    def run(wrap):
        step, parts = made()
        step = wrap(step)
        torch.manual_seed(3)
        for i, size in enumerate([8, 8, 8, 5, 8, 9, 12]):
            step(*batch(i, size))
        before = torchbolt.stats()["recordings"]
        for i, size in enumerate([8, 5, 7, 30]):
            step(*batch(i, size))
        return state_of(parts), torchbolt.stats()["recordings"] - before

    eager = run(lambda step: step)
    torchbolt.reset()
    torch.testing.assert_close(run(torchbolt.compile), eager, rtol=2e-5, atol=2e-5)


def test_many_sizes_are_not_recorded_each():
    step, _ = made()
    step = torchbolt.compile(step)
    for i in range(60):
        if i == 30:
            before = torchbolt.stats()["recordings"]
        step(*batch(i, 4 + i % 30))
    assert torchbolt.stats()["recordings"] == before
