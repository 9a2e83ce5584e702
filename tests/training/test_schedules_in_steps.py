# tests/training/test_schedules_in_steps.py
"""Rates of an optimizer that differ from step to step: they are followed, and no step is recorded again for them."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from step_scripts import assert_same, batches, compared, net, recorded_after, scheduled, state_of, stepping
from torch import nn

import torchbolt


def test_a_rate_by_the_number_of_the_step_and_scales_by_sizes():
    """nanoGPT's loop: numbers that differ between calls make none of those that are computed from fixed sizes differ."""

    def make():
        model = nn.Linear(16, 12)
        opt = torch.optim.SGD(model.parameters(), 0.1)

        def run(x, y, number):
            for group in opt.param_groups:
                group["lr"] = 0.1 * 0.9**number
            q, k, _ = model(x).view(len(x), 2, 6).split(2, dim=2)
            attention = (q @ k.mT * (1.0 / math.sqrt(k.size(-1)))).softmax(-1)
            loss = F.cross_entropy(attention.flatten(1), y) / len(x)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss.detach()

        return run, model

    found = []
    for wrap in (lambda step: step, torchbolt.compile):
        torch.manual_seed(0)
        torchbolt.reset()
        run, model = make()
        run = wrap(run)
        torch.manual_seed(5)
        losses = [run(x, y, number) for number, (x, y) in enumerate(batches(6))]
        found.append((losses, model.state_dict()))
    assert_same(*found[::-1])
    stats = torchbolt.stats()
    assert (stats["regions"], stats["graph_breaks"], stats["eager_fallbacks"]) == (2, 0, 0)


SCHEDULES = {
    "cosine": lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 1000),
    "lambda": lambda opt: torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1 / (1 + i)),
    "exponential": lambda opt: torch.optim.lr_scheduler.ExponentialLR(opt, 0.999),
    "linear": lambda opt: torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 500),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_not_recorded_again(name):
    make = functools.partial(scheduled, SCHEDULES[name])
    assert recorded_after(3, make, 200) == 0


def test_a_warm_up_before_another_schedule():
    """Which of them it is, is recorded where it changes, and not in each step."""

    def one_after_the_other(opt):
        of = torch.optim.lr_scheduler
        return of.SequentialLR(opt, [of.LinearLR(opt, 0.1, 1.0, 4), of.CosineAnnealingLR(opt, 1000)], [4])

    make = functools.partial(scheduled, one_after_the_other)
    assert recorded_after(9, make, 60) == 0
    stats = compared(make, 12)
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)


def test_a_schedule_outside_is_not_recorded_again():
    model = net()
    opt = torch.optim.AdamW(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 1000)
    step = torchbolt.compile(stepping(model, opt))
    for i, (x, y) in enumerate(batches(200)):
        if i == 3:
            before = torchbolt.stats()["recordings"]
        step(x, y)
        schedule.step()
    assert torchbolt.stats()["recordings"] == before


def test_a_weight_of_the_loss_that_differs():
    def run(wrap):
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1)

        def step(x, y, weight):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y) + weight * model[0].weight.square().mean()
            loss.backward()
            opt.step()
            return loss.detach()

        step = wrap(step)
        return [step(x, y, 0.1 * i + 0.05) for i, (x, y) in enumerate(batches(6))], state_of([model, opt])

    assert_same(run(torchbolt.compile), run(lambda step: step))
