# tests/training/test_ways_of_passes.py
"""What the backward pass of a step comes to: inputs, histories from outside, functions of Python's, leaves that are switched."""

import pytest
import torch
import torch.nn.functional as F
from step_scripts import assert_same, batches, compared, net, state_of, train
from torch import nn

import torchbolt


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


def test_leaves_that_are_switched_in_loops_of_the_step_itself():
    """A loop that only switches is one end from the second turn on, and so are the loops around it that only do so."""

    def make():
        torch.manual_seed(1)
        judges = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(2)])
        opt = torch.optim.SGD(judges.parameters(), 0.1)

        def step(x, y):
            for judge in judges:
                for p in judge.parameters():
                    p.requires_grad_(True)
            first = F.cross_entropy(judges[0](x), y) + F.cross_entropy(judges[1](x), y)
            for name, p in judges.named_parameters():
                if name.startswith("0.") and not isinstance(name, list):
                    p.requires_grad = False
            second = F.cross_entropy(judges[0](x.sin()) + judges[1](x.cos()), y)
            (first + second).backward()
            opt.step()
            opt.zero_grad()
            return first.detach(), second.detach(), [p.requires_grad for p in judges.parameters()]

        return step, (judges, opt)

    torchbolt.reset()
    assert_same(train(make, torchbolt.compile, 8), train(make, lambda step: step, 8))
    assert torchbolt.stats()["recordings"] < 12 and torchbolt.stats()["graph_breaks"] < 10, torchbolt.stats()
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_loop_that_also_computes_is_no_loop_of_switches():
    nets = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def fn(nets, x, made):
        for each in nets:
            x.requires_grad_(not x.requires_grad)
            made.append(each(x))
        return sum(made)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(nets, x.clone(), []), fn(nets, x.clone(), []))
    assert torchbolt.stats()["regions"] > 1
