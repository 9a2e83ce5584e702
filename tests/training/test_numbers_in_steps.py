# tests/training/test_numbers_in_steps.py
"""Whole steps in which gradients rest on numbers that differ between calls, and on what inference mode made."""

import pytest
import torch
import torch.nn.functional as F
from step_scripts import assert_same, batches, net, state_of

import torchbolt


def stepping(weigh):
    """`weigh(loss, x, i)`: what the pass begins from."""

    def make():
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1)

        def step(x, y, i):
            loss = weigh(F.cross_entropy(model(x), y), x, i)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        return step, (model, opt)

    return make


def trained(make, wrap, steps=6):
    step, parts = make()
    step = wrap(step)
    return [step(x, y, i) for i, (x, y) in enumerate(batches(steps))], state_of(parts)


OPERANDS = {
    "taken out of a tensor": lambda loss, x, i: loss * x.abs().mean().item(),
    "divides": lambda loss, x, i: loss / x.abs().sum().item(),
    "of the call": lambda loss, x, i: loss * min(1.0, 0.1 + i / 4),
    "computed from both": lambda loss, x, i: (loss * (0.5 + i) + 2 * i) / (1 + x.max().item()),
    "squared by the formula": lambda loss, x, i: (0.3 + i) / (loss + 1),
    "of the input": lambda loss, x, i: loss + ((x * x.max().item()).sum() * loss).square() * 1e-3,
}


@pytest.mark.parametrize("name", OPERANDS)
def test_an_operand_is_another_number_in_each_call(name):
    make = stepping(OPERANDS[name])
    eager = trained(make, lambda step: step)
    assert_same(trained(make, torchbolt.compile), eager)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)
    assert stats["regions"] <= 3


OTHERS = {
    "an exponent": lambda loss, x, i: loss ** (1.5 + i / 8),
    "an exponent that is data": lambda loss, x, i: loss ** (1 + x.max().item() / 8),
    "a factor as an argument": lambda loss, x, i: torch.add(loss, loss.square(), alpha=x.max().item()),
    "a bound": lambda loss, x, i: loss.clamp(max=1.0 + i / 4),
    "in a list": lambda loss, x, i: torch.stack([loss, torch.as_tensor(x.max().item()) * loss]).sum(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_number_that_formulas_compute_with(name):
    make = stepping(OTHERS[name])
    eager = trained(make, lambda step: step)
    assert_same(trained(make, torchbolt.compile), eager)


def taught(wrap, hand_out=False):
    model, teacher = net(), net()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def loss_of(x):
        with torch.inference_mode():
            told = teacher(x)
        loss = F.kl_div(F.log_softmax(model(x), 1), F.softmax(told / 4, 1), reduction="batchmean")
        return (loss, told) if hand_out else (loss,)

    def step(x, run):
        loss, *told = run(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return [loss.detach(), *told], [t.is_inference() for t in told]

    if wrap == "step":
        whole = torchbolt.compile(lambda x: step(x, loss_of))
        return [whole(x) for x, _ in batches(5)], state_of([model])
    run = torchbolt.compile(loss_of) if wrap == "model" else loss_of
    return [step(x, run) for x, _ in batches(5)], state_of([model])


@pytest.mark.parametrize("hand_out", [False, True], ids=["kept", "handed out"])
@pytest.mark.parametrize("wrap", ["step", "model"])
def test_a_teacher_in_inference_mode(wrap, hand_out):
    assert_same(taught(wrap, hand_out), taught(None, hand_out))
    if not hand_out:
        stats = torchbolt.stats()
        assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)


def test_how_many_are_drawn_is_a_number():
    """As a generator is trained: from the third number on there is a program for all."""

    def run(wrap):
        torch.manual_seed(1)
        model = net()
        features = next(model.parameters()).shape[1]
        opt = torch.optim.SGD(model.parameters(), 0.1)

        def step(many):
            opt.zero_grad()
            loss = model(torch.randn(many, features)).square().mean()
            loss.backward()
            opt.step()
            return loss.item()

        step = wrap(step)
        losses = [step(many) for many in (8, 8, 8, 10, 12)]
        before = torchbolt.stats()["recordings"]
        losses += [step(many) for many in (8, 9, 10, 11, 12, 14, 15)]
        return losses, state_of((model, opt)), torchbolt.stats()["recordings"] - before

    eager = run(lambda step: step)
    torchbolt.reset()
    torch.testing.assert_close(run(torchbolt.compile), eager, rtol=2e-5, atol=2e-5)
