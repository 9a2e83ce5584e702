# tests/end_to_end/test_parts_of_modules.py
"""Guards on a module of many layers, some of which change from call to call: only those are walked again."""

import random

import pytest
import torch
from torch import nn

import torchbolt


class Layer(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale, self.table, self.pair = scale, {"shift": [0.5, 1.5]}, (1.0, scale)

    def forward(self, x):
        return self.linear(x) * self.scale + self.table["shift"][1] - self.pair[0]


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Layer(float(i % 3)) for i in range(12)])
        self.calls, self.seen = 0, []

    def forward(self, x):
        self.calls += 1
        self.seen.append(len(self.seen))
        for layer in self.layers:
            x = layer(x)
        return x + self.seen[-1]


def replaced(stack, at):
    stack.layers[at] = Layer(0.5)


def scaled(stack, at):
    stack.layers[at].scale += 1.0


def shifted(stack, at):
    stack.layers[at].table["shift"][1] = float(at)


def given_another_table(stack, at):
    stack.layers[at].table = {"shift": (2.5, 3.5)} if stack.calls % 2 else {"shift": [2.5, 3.5]}


def given_another_weight(stack, at):
    stack.layers[at].linear.weight = nn.Parameter(torch.ones(3, 3) * at)


def written_in_place(stack, at):
    stack.layers[at].linear.weight.data.mul_(0.5)


def given_another_pair(stack, at):
    stack.layers[at].pair = (float(at), 2.0)


def exchanged(stack, at):
    other = (at + 1) % len(stack.layers)
    stack.layers[at], stack.layers[other] = stack.layers[other], stack.layers[at]


def made_another_class(stack, at):
    class Half(Layer):
        def forward(self, x):
            return super().forward(x) * 0.5

    stack.layers[at].__class__ = Half


CHANGES = [replaced, scaled, shifted, given_another_table, given_another_weight, written_in_place, given_another_pair]
CHANGES += [exchanged, made_another_class]


@pytest.mark.parametrize("seed", range(8))
def test_layers_that_change(seed):
    torchbolt.config.recompile_limit, before = 64, torchbolt.config.recompile_limit
    torchbolt.reset()
    drawn = random.Random(seed)
    mine, eagers = Stack(), Stack()
    compiled = torchbolt.compile(mine)
    with torch.no_grad():
        for call in range(40):
            if call > 3 and drawn.random() < 0.5:
                change, at = drawn.choice(CHANGES), drawn.randrange(12)
                for stack in (mine, eagers):
                    torch.manual_seed(call)
                    change(stack, at)
            x = torch.full((2, 3), 0.25)
            torch.testing.assert_close(compiled(x), eagers(x))
            assert (mine.calls, mine.seen) == (eagers.calls, eagers.seen)
    torchbolt.config.recompile_limit = before
