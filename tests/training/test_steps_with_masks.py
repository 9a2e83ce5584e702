# tests/training/test_steps_with_masks.py
"""Whole steps through operators of which ATen's own formulas pick by masks: they are choices there, and one region."""

import pytest
import torch
import torch.nn.functional as F
from step_scripts import assert_same, batches, net, state_of

import torchbolt


def filled_with_a_number(out, x, y):
    out = out.clone()
    out[out < -0.5] = -1.0
    return F.cross_entropy(out, y)


def filled_with_what_is_differentiated(out, x, y):
    rows = x.clone()
    rows[x.sum(1) > 0] = out.mean().tanh()
    return rows.square().mean() + F.cross_entropy(out, y)


def smoothed_and_weighted(out, x, y):
    weight = torch.tensor([1.0, 2.0, 0.5, 1.5])
    y = y.masked_fill(x[:, 0] > 1, -100)
    return F.cross_entropy(out, y, weight, label_smoothing=0.1)


def smoothed_and_weighted_places(out, x, y):
    loss = torch.nn.CrossEntropyLoss(torch.tensor([1.0, 2.0]), ignore_index=1, label_smoothing=0.2)
    return loss(out.view(len(x), 2, 2), torch.stack([y % 2, y // 2], 1))


LOSSES = [
    filled_with_a_number,
    filled_with_what_is_differentiated,
    smoothed_and_weighted,
    smoothed_and_weighted_places,
]


def trained(loss_of, wrap):
    model = net()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    @wrap
    def step(x, y):
        loss = loss_of(model(x), x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return [step(x, y) for x, y in batches(5)], state_of([model])


@pytest.mark.parametrize("loss_of", LOSSES)
def test_a_step_is_one_region(loss_of):
    eager = trained(loss_of, lambda step: step)
    torchbolt.reset()
    assert_same(trained(loss_of, torchbolt.compile), eager)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"], stats["regions"]) == (0, 0, 2)


@pytest.mark.parametrize("loss_of", LOSSES)
def test_a_model_is_one_region(loss_of):
    model = net()
    run = torchbolt.compile(lambda x, y: loss_of(model(x), x, y))
    for x, y in batches(4):
        found = []
        for each in (run, lambda x, y: loss_of(model(x), x, y)):
            model.zero_grad()
            loss = each(x, y)
            loss.backward()
            found.append([loss.detach(), *[p.grad.clone() for p in model.parameters()]])
        assert_same(*found)
