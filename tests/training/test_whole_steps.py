# tests/training/test_whole_steps.py
"""Whole training steps: what they leave is eager's, they are one region, and no step after the second is recorded."""

import copy
import functools
import math

import pytest
import torch
import torch.nn.functional as F
from step_scripts import (
    assert_same,
    batches,
    compared,
    loss_with_its_history,
    net,
    state_of,
    stepping,
    train,
)
from torch import nn

import torchbolt

# A script gives (step, everything whose state a step changes). `whole`: its step is one region.


def sgd_with_momentum():
    model = net()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    return stepping(model, opt), (model, opt)


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


def schedule_inside():
    model = net()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)
    inner = stepping(model, opt)

    def step(x, y):
        loss = inner(x, y)
        schedule.step()
        return loss

    return step, (model, opt)


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
    "schedule_inside": schedule_inside,
}


@pytest.fixture(autouse=True)
def start():
    torch.manual_seed(0)
    torchbolt.reset()


@pytest.mark.parametrize("name", WHOLE)
def test_a_step_is_one_region(name):
    eager = train(WHOLE[name], lambda step: step)
    assert_same(train(WHOLE[name], torchbolt.compile), eager)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)
    # The first step makes the optimizer's state.
    assert stats["regions"] <= 2 or name.startswith(("schedule", "zeros"))


def recorded_after(n, make, steps):
    """How many recordings there are after the first n steps."""
    step, _ = make()
    step = torchbolt.compile(step)
    for i, (x, y) in enumerate(batches(steps, 16)):
        if i == n:
            before = torchbolt.stats()["recordings"]
        step(x, y)
    return torchbolt.stats()["recordings"] - before


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


def scheduled(make_schedule, optimizer=torch.optim.AdamW):
    model = net()
    opt = optimizer(model.parameters(), 0.01)
    schedule = make_schedule(opt)
    inner = stepping(model, opt)

    def step(x, y):
        loss = inner(x, y)
        schedule.step()
        return loss

    return step, (model, opt)


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


@pytest.mark.parametrize("n", [1, 2, 16])
def test_accumulation_is_not_recorded_again(n):
    assert recorded_after(2, functools.partial(accumulated, n), 6) == 0


# ---- what somebody looks at


def hooked(register):
    def make():
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        register(model)
        return stepping(model, opt), (model, opt)

    return make


HOOKS = {
    "tensor": lambda model: model[0].weight.register_hook(lambda g: g * 2),
    "accumulated": lambda model: model[0].weight.register_post_accumulate_grad_hook(
        lambda p: [p.grad.mul_(3)] and None
    ),
    "module": lambda model: model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)),
    "module_before": lambda model: model[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)),
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks(name):
    compared(hooked(HOOKS[name]))


@pytest.mark.parametrize("name", ["tensor", "accumulated"])
def test_hooks_that_come_later(name):
    def run(wrap):
        step, parts = hooked(lambda model: None)()
        step = wrap(step)
        for i, (x, y) in enumerate(batches(8)):
            if i == 3:
                handle = HOOKS[name](parts[0])
            if i == 6:
                handle.remove()
            step(x, y)
        return state_of(parts)

    assert_same(run(torchbolt.compile), run(lambda step: step))


def test_a_hook_within_the_step():
    def make():
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1)

        def step(x, y):
            opt.zero_grad()
            out = model(x)
            out.register_hook(lambda g: g * 2)
            loss = F.cross_entropy(out, y)
            loss.backward()
            opt.step()
            return loss.detach()

        return step, (model, opt)

    compared(make)


def test_gradients_of_what_is_no_leaf_are_retained():
    def make():
        model = net()

        def step(x, y):
            out = model(x)
            out.retain_grad()
            F.cross_entropy(out, y).backward()
            return out.grad

        return step, (model,)

    compared(make)


def test_anomaly_mode_and_hooks_for_saved_tensors():
    step, parts = sgd_with_momentum()
    step = torchbolt.compile(step)
    data = list(batches(8))
    packed = []
    with torch.autograd.set_detect_anomaly(False):
        for x, y in data[:3]:
            step(x, y)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            step(*data[3])
        assert packed
        with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
            step(data[4][0] * float("nan"), data[4][1])


# ---- what a pass comes to


def test_a_history_from_outside():
    def run(wrap):
        model, before = net(), nn.Linear(16, 16)
        nn.init.eye_(before.weight), nn.init.zeros_(before.bias)
        step = wrap(lambda x, y: F.cross_entropy(model(x), y).backward())
        for x, y in batches(3):
            step(before(x), y)
        return state_of([model, before])

    assert_same(run(torchbolt.compile), run(lambda step: step))


def test_the_gradient_of_an_input():
    def run(wrap):
        model = net()

        def attack(x, y):
            F.cross_entropy(model(x), y).backward()
            return (x + 0.1 * x.grad.sign()).detach()

        attack = wrap(attack)
        found = []
        for x, y in batches(4):
            found.append(attack(x.requires_grad_(), y))
            found.append(x.grad)
        return found

    assert_same(run(torchbolt.compile), run(lambda step: step))


def test_gradients_of_gradients():
    def make():
        model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p))

        def step(x, y):
            x = x.clone().requires_grad_()
            loss = F.cross_entropy(model(x), y)
            (g,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + g.pow(2).sum()).backward()
            return loss.detach()

        return step, (model,)

    compared(make)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_a_function_of_pythons():
    def make():
        model = net()

        def step(x, y):
            F.cross_entropy(Doubled.apply(model(x)), y).backward()

        return step, (model,)

    compared(make)


def test_an_embedding_with_sparse_gradients():
    def make():
        table, model = nn.Embedding(4, 16, sparse=True), net()
        nn.init.ones_(table.weight)

        def step(x, y):
            F.cross_entropy(model(x + table(y)), y).backward()
            found = table.weight.grad.to_dense()
            table.weight.grad = None
            return found

        return step, (model,)

    compared(make)


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


def test_a_gradient_asked_for_of_what_came_out_of_something():
    """The first calls are given a leaf, later ones not."""

    def run(wrap):
        model = net()

        def slope(x, y):
            (g,) = torch.autograd.grad(F.cross_entropy(model(x), y), x)
            return g

        slope = wrap(slope)
        found = []
        for i, (x, y) in enumerate(batches(5)):
            x.requires_grad_()
            found.append(slope(x if i < 3 else x * 2, y))
        return found

    assert_same(run(torchbolt.compile), run(lambda fn: fn))


def switched(nets, on):
    for each in nets if isinstance(nets, list) else [nets]:
        for p in each.parameters():
            p.requires_grad = on


@pytest.mark.parametrize("switch", [switched, nn.Module.requires_grad_], ids=["in a loop", "of a module"])
def test_leaves_that_are_switched_in_a_loop(switch):
    """The judge of a GAN rests while the other side learns: one end for each switch, and not one for each parameter."""

    def make():
        makes, judges = nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
        opt = torch.optim.SGD([*makes.parameters(), *judges.parameters()], 0.1)

        def step(x, y):
            switch(judges, True)
            made = makes(x)
            judged = judges(made.detach()).sigmoid().mean() - judges(x).sigmoid().mean()
            judged.backward()
            switch(judges, False)
            loss = -judges(made).sigmoid().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return judged.detach(), loss.detach(), [p.requires_grad for p in judges.parameters()]

        return step, (makes, judges, opt)

    torch.manual_seed(2)
    eager = train(make, lambda step: step, 8)
    found = []

    def compiled(step):
        found.append(torchbolt.compile(step))
        return found[0]

    torch.manual_seed(2)
    assert_same(train(make, compiled, 8), eager)
    for x, y in batches(1):  # the third is a pass into what was made before a switch
        assert "Graph Break Count: 3" in str(torchbolt.explain(found[0])(x, y))


LOSSES = {
    "multi margin": lambda out, y: F.multi_margin_loss(out, y),
    "multilabel margin": lambda out, y: F.multilabel_margin_loss(out, y[:, None].expand(out.shape).contiguous()),
    "fractional pooling": lambda out, y: (
        F.fractional_max_pool3d(out.view(1, 1, 4, 4, 2), 1, output_size=(2, 2, 1), _random_samples=torch.ones(1, 1, 3) / 3)
        .square().mean()
    ),
    "quantised": lambda out, y: torch.fake_quantize_per_tensor_affine(out, 0.1, 0, -128, 127).square().mean(),
    "quantised by a tensor": lambda out, y: torch.fake_quantize_per_tensor_affine(
        out, torch.tensor(0.1), torch.tensor(0), -128, 127
    ).square().mean(),
    "quantised by channels": lambda out, y: torch.fake_quantize_per_channel_affine(
        out, torch.full((4,), 0.1), torch.zeros(4), 1, -128, 127
    ).square().mean(),
    "masked softmax": lambda out, y: torch._masked_softmax(out, out > 9, 1).square().sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_that_only_the_processors_kernels_describe(name):
    """One operator whose results nobody knew left the whole step to eager."""

    def trained(wrap):
        torch.manual_seed(1)
        model = nn.Linear(16, 4)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = LOSSES[name](model(x), y)
            loss.backward()
            opt.step()
            return loss.detach()

        step = wrap(step)
        data = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(4)]
        return [step(x, y) for x, y in data], [p.detach() for p in model.parameters()]

    torchbolt.reset()
    torch.testing.assert_close(trained(torchbolt.compile), trained(lambda step: step), rtol=1e-4, atol=1e-5)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def steps_of(loss):
    """Losses and parameters of four steps, compiled and eager; then the regions."""

    def trained(wrap):
        torch.manual_seed(1)
        model = nn.Linear(16, 4)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            opt.zero_grad()
            value = loss(model(x))
            value.backward()
            opt.step()
            return value.detach()

        compiled = wrap(step)
        return [compiled(torch.randn(8, 16)) for _ in range(4)], [p.detach() for p in model.parameters()], compiled

    *theirs, _ = trained(lambda step: step)
    *mine, compiled = trained(torchbolt.compile)
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    torchbolt.api.wait()
    assert torchbolt.stats()["eager_fallbacks"] == 0
    regions = torchbolt.api.compiled_of(compiled)._regions()
    assert all(region["compiled"] for region in regions)
    return regions


def test_an_operator_that_looks_at_its_data_is_compiled_around():
    """Quantiles look whether ranks are whole, which left the whole step to eager."""
    steps_of(lambda out: (out - torch.quantile(out, 0.5, dim=1, keepdim=True)).square().mean())
    assert set(torchbolt.stats()["break_reasons"]) == {"calls torch.autograd.graph._engine_run_backward"}


def test_complex_numbers_of_pythons_in_a_step():
    """Their conjugates in the backward pass are numbers, too."""
    steps_of(lambda out: (out * (1 + 2j)).abs().mean() + ((3 - 1j) * out).real.square().mean())
    assert torchbolt.stats()["graph_breaks"] == 0


def test_composites_in_a_step():
    steps_of(lambda out: torch.linalg.vander(out[:, 0], N=4).mean() + out.nanmean())
    assert torchbolt.stats()["graph_breaks"] == 0
