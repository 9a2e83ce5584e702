# tests/training/test_scaled_steps.py
"""torch.amp.GradScaler inside a whole step: one region, and steps that overflow are skipped just as eager skips them."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import torchbolt
from torchbolt import api


def scaled(optimizer, unscales=True, clip=True, interval=3):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    opt = optimizer(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=interval)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if unscales:
            scaler.unscale_(opt)
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.detach()

    return step, (model, opt, scaler)


def batches(n, bad=()):
    draw = torch.Generator().manual_seed(0)
    for i in range(n):
        x, y = torch.randn(8, 16, generator=draw), torch.randint(0, 4, (8,), generator=draw)
        yield (x * float("inf") if i in bad else x), y


def state_of(parts):
    found = []
    for part in parts:
        found += pytree.tree_leaves(part.state_dict())
        if isinstance(part, nn.Module):
            found += [p.grad for p in part.parameters()]
    return [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in found]


def train(make, wrap, n, bad):
    step, parts = make()
    step = wrap(step)
    states = []
    for x, y in batches(n, bad):
        step(x, y)
        states.append(state_of(parts))
    return states


OPTIMIZERS = {
    "sgd": functools.partial(torch.optim.SGD, momentum=0.9),
    "adamw": torch.optim.AdamW,
    "adamw_single": functools.partial(torch.optim.AdamW, foreach=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("unscales", [True, False], ids=["unscaled", "by_step"])
@pytest.mark.parametrize("bad", [(), (5,), (4, 8)], ids=["all", "one_skipped", "two_skipped"])
def test_scaled_steps(name, unscales, bad):
    make = functools.partial(scaled, OPTIMIZERS[name], unscales)
    eager = train(make, lambda step: step, 12, bad)
    torchbolt.reset()
    ours = train(make, torchbolt.compile, 12, bad)
    torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5, equal_nan=True)
    for i in bad:  # what a skipped step leaves of the parameters is what was there
        torch.testing.assert_close(ours[i][:6], ours[i - 1][:6], rtol=0, atol=0)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, len(bad)), stats


def test_no_step_after_the_first_few_is_recorded():
    step, _ = scaled(torch.optim.AdamW)
    step = torchbolt.compile(step)
    for i, (x, y) in enumerate(batches(30, bad=(12, 20))):
        if i == 6:
            before = torchbolt.stats()["recordings"]
        step(x, y)
    assert torchbolt.stats()["recordings"] == before


def test_the_first_step_overflows():
    make = functools.partial(scaled, torch.optim.AdamW)
    eager = train(make, lambda step: step, 10, (0, 1))
    torchbolt.reset()
    torch.testing.assert_close(train(make, torchbolt.compile, 10, (0, 1)), eager, rtol=2e-5, atol=2e-5, equal_nan=True)


def test_scales_grow_and_shrink_as_eagers():
    def run(wrap):
        _, (model, _, _) = scaled(torch.optim.SGD)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**125, growth_interval=2)
        opt = torch.optim.SGD(model.parameters(), 0.01)

        def step(x, y):
            opt.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y) * 1e-20).backward()
            scaler.step(opt)
            scaler.update()

        step = wrap(step)
        scales = []
        for x, y in batches(14, bad=(9,)):  # no larger than what a float can be
            step(x, y)
            scales.append((scaler.get_scale(), scaler._growth_tracker.item()))
        return scales

    assert run(torchbolt.compile) == run(lambda step: step)


def test_gradients_are_unscaled_in_the_program():
    """None is given to ATen, which would take a copy of each."""
    step, _ = scaled(torch.optim.AdamW)
    step = torchbolt.compile(step)
    for x, y in batches(4):
        step(x, y)
    plan = api.compiled_of(step)._regions()[-1]["plan"]
    assert "kernel @" in plan and "_amp_" not in plan
