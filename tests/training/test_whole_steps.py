# tests/training/test_whole_steps.py
"""Whole training steps: what they leave is eager's, they are one region, and no step after the second is recorded."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from step_scripts import (
    assert_same,
    batches,
    compared,
    loss_with_its_history,
    net,
    recorded_after,
    scheduled,
    sgd_with_momentum,
    state_of,
    stepping,
    train,
)
from torch import nn

import torchbolt

# A script gives (step, everything whose state a step changes). `whole`: its step is one region.


def adamw(**options):
    model = net(drop=0.1)
    opt = torch.optim.AdamW(model.parameters(), 0.01, **options)
    return stepping(model, opt, "last"), (model, opt)


def zeroed(zero):
    model = net()
    opt = torch.optim.AdamW(model.parameters(), 0.01)
    return stepping(model, opt, zero, none=False), (model, opt)


def clipped(clip):
    model = net()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    return stepping(model, opt, clip=clip), (model, opt)


def accumulated(n):
    model = net(drop=0.1)
    opt = torch.optim.AdamW(model.parameters(), 0.01)

    def step(x, y):
        total = 0.0
        for xs, ys in zip(x.chunk(n), y.chunk(n), strict=True):
            loss = F.cross_entropy(model(xs), ys) / n
            loss.backward()
            total = total + loss.detach()
        opt.step()
        opt.zero_grad()
        return total

    return step, (model, opt)


def gradients_by_hand():
    model = net()
    parameters = list(model.parameters())

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                p -= 0.1 * g
        return loss.detach()

    return step, (model,)


def two_losses():
    model, head = net(), nn.Linear(4, 4)
    opt = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.05)

    def step(x, y):
        opt.zero_grad()
        out = model(x)
        first, second = F.cross_entropy(out, y), F.mse_loss(head(out), out.detach())
        first.backward(retain_graph=True)
        second.backward()
        opt.step()
        return first.detach(), second.detach()

    return step, (model, head, opt)


def frozen_parts_and_an_average():
    model = net()
    for p in model[0].parameters():
        p.requires_grad_(False)
    average = copy.deepcopy(model)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 0.01)
    inner = stepping(model, opt)

    def step(x, y):
        loss = inner(x, y)
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters(), strict=True):
                a.lerp_(p, 0.1)
        return loss

    return step, (model, average, opt)


def two_networks():
    """Generator and discriminator, each with a step of its own, on the same samples."""
    torch.manual_seed(2)
    makes, judges = nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    first, second = torch.optim.Adam(makes.parameters(), 0.01), torch.optim.Adam(judges.parameters(), 0.01)

    def step(x, y):
        made = makes(x)
        second.zero_grad()
        judged = judges(made.detach()).sigmoid().mean() - judges(x).sigmoid().mean()
        judged.backward()
        second.step()
        first.zero_grad()
        loss = -judges(made).sigmoid().mean()
        loss.backward()
        first.step()
        return judged.detach(), loss.detach()

    return step, (makes, judges, first, second)


def gradients_stay():
    model = net()

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    return step, (model,)


def closure():
    model = net()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        def compute():
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return opt.step(compute).detach()

    return step, (model, opt)


def batch_norm():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return stepping(model, opt), (model, opt)


def shared_parameters():
    model = net()
    table = nn.Embedding(4, 4)
    opt = torch.optim.Adam([*model.parameters(), *table.parameters()], 0.01)

    def step(x, y):
        opt.zero_grad()
        hidden = model(x) + table(y)
        loss = F.cross_entropy(hidden @ table.weight.t(), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, (model, table, opt)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rate):
        ctx.rate = rate
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.rate * g, None


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        turned = weight.t()
        ctx.save_for_backward(x, turned)
        return x @ turned

    @staticmethod
    def backward(ctx, g):
        x, turned = ctx.saved_tensors
        return g @ turned.t(), g.t() @ x


def functions_that_give_and_keep_views():
    """A gradient that is reversed; a function that keeps its parameter turned."""
    model, domain = net(), nn.Linear(4, 4)
    opt = torch.optim.SGD([*model.parameters(), *domain.parameters()], 0.1)

    def step(x, y):
        out = model(x)
        told = Product.apply(Reversed.apply(out, 0.3), domain.weight) + domain.bias
        loss = F.cross_entropy(out, y) + F.cross_entropy(told, (y + 1) % 4)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, (model, domain, opt)


WHOLE = {
    "functions_that_give_and_keep_views": functions_that_give_and_keep_views,
    "sgd": sgd_with_momentum,
    "adamw": adamw,
    "adamw_foreach": functools.partial(adamw, foreach=True),
    "adamw_single": functools.partial(adamw, foreach=False),
    "adamw_fused": functools.partial(adamw, fused=True),
    "adamw_amsgrad": functools.partial(adamw, amsgrad=True, maximize=True),
    "zeros_first": functools.partial(zeroed, "first"),
    "zeros_last": functools.partial(zeroed, "last"),
    "clip_norm": functools.partial(clipped, lambda ps: nn.utils.clip_grad_norm_(ps, 0.1)),
    "clip_value": functools.partial(clipped, lambda ps: nn.utils.clip_grad_value_(ps, 0.01)),
    "accumulate_1": functools.partial(accumulated, 1),
    "accumulate_4": functools.partial(accumulated, 4),
    "accumulate_8": functools.partial(accumulated, 8),
    "by_hand": gradients_by_hand,
    "two_losses": two_losses,
    "frozen": frozen_parts_and_an_average,
    "gan": two_networks,
    "history": loss_with_its_history,
    "gradients_stay": gradients_stay,
    "closure": closure,
    "batch_norm": batch_norm,
    "shared": shared_parameters,
    "schedule_inside": functools.partial(
        scheduled,
        lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100),
        functools.partial(torch.optim.SGD, momentum=0.9),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_step_is_one_region(name):
    eager = train(WHOLE[name], lambda step: step)
    assert_same(train(WHOLE[name], torchbolt.compile), eager)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)
    # The first step makes the optimizer's state.
    assert stats["regions"] <= 2 or name.startswith(("schedule", "zeros"))


@pytest.mark.parametrize("n", [1, 2, 16])
def test_accumulation_is_not_recorded_again(n):
    assert recorded_after(2, functools.partial(accumulated, n), 6) == 0


# ---- objects


def test_gradients_that_stay_are_the_same_objects():
    step, (model, _) = zeroed("last")
    step = torchbolt.compile(step)
    seen = []
    for x, y in batches(5):
        step(x, y)
        seen.append([p.grad for p in model.parameters()])
    assert all(
        a is b for first, later in zip(seen[1:], seen[2:], strict=False) for a, b in zip(first, later, strict=True)
    )


def test_gradients_are_memory_of_their_own():
    step, (model,) = gradients_stay()
    step = torchbolt.compile(step)
    for x, y in batches(3):
        for p in model.parameters():
            p.grad = None
        step(x, y)
        places = [p.grad.data_ptr() for p in model.parameters()]
        assert len(set(places)) == len(places)
        assert all(p.grad.stride() == p.stride() and not p.grad.requires_grad for p in model.parameters())


def test_a_gradient_that_two_leaves_share():
    def make():
        parts = nn.ParameterList([nn.Parameter(torch.ones(4, 3)) for _ in range(3)])

        def step(x, y):
            for p in parts:
                p.grad = None
            a, b, c = parts
            (a + b).sum().backward()
            (c * 2 + torch.cat([a, b]).sum()).sum().backward()
            a.grad.add_(1)
            return [p.grad.clone() for p in parts]

        return step, (parts,)

    compared(make)


def test_what_is_written_between_the_passes_raises_as_in_eager():
    model = net()

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        with torch.no_grad():
            model[4].weight.add_(1)
        loss.backward()

    step = torchbolt.compile(step)
    for x, y in batches(3):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            step(x, y)


# ---- what raises leaves what eager leaves


def test_an_exception_in_the_middle():
    def run(wrap):
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def step(x, y, fails):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if fails:
                raise ValueError("no")
            opt.step()
            opt.zero_grad()

        step = wrap(step)
        for i, (x, y) in enumerate(batches(8)):
            if i % 3 == 2:
                with pytest.raises(ValueError, match="no"):
                    step(x, y, True)
            else:
                step(x, y, False)
        return state_of([model, opt])

    assert_same(run(torchbolt.compile), run(lambda step: step))


def test_a_label_out_of_range():
    step, parts = sgd_with_momentum()
    step = torchbolt.compile(step)
    data = list(batches(5))
    for x, y in data[:3]:
        step(x, y)
    before = [p.detach().clone() for p in parts[0].parameters()]
    with pytest.raises(IndexError):
        step(data[3][0], data[3][1] + 100)
    assert_same([p.detach() for p in parts[0].parameters()], before)
    step(*data[4])


def test_batches_of_other_sizes():
    def run(wrap):
        step, parts = adamw()
        step = wrap(step)
        for size in (8, 8, 5, 8, 7, 6):
            for x, y in batches(1, size):
                torch.manual_seed(size)
                step(x, y)
        return state_of(parts)

    assert_same(run(torchbolt.compile), run(lambda step: step))


def test_fullgraph():
    step, _ = clipped(lambda ps: nn.utils.clip_grad_norm_(ps, 0.1))
    step = torchbolt.compile(step, fullgraph=True)
    for x, y in batches(3):
        step(x, y)
    assert torchbolt.stats()["graph_breaks"] == 0


def test_loss_scaling():
    def make(dtype=torch.bfloat16):
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=3)

        def step(x, y):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            return loss.detach()

        return step, (model, opt, scaler)

    eager, ours = train(make, lambda step: step), train(make, torchbolt.compile)
    torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-3)
    assert torchbolt.stats()["recordings"] <= 6


def test_a_checkpoint_within_a_step():
    def make():
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1)

        def step(x, y):
            opt.zero_grad()
            hidden = torch.utils.checkpoint.checkpoint(model[:3], x, use_reentrant=False)
            loss = F.cross_entropy(model[4](hidden), y)
            loss.backward()
            opt.step()
            return loss.detach()

        return step, (model, opt)

    compared(make)
