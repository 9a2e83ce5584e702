# tests/training/recipes.py
"""What recipes of training have in common: a recipe is a generator of two functions, one of which is
torchbolt.compile: what a step goes through, and what a model does. It yields what is compared.
"""

import itertools
import random

import torch
from torch import nn

import torchbolt


class Recipes(dict):
    """By name. Each runs in eager, with its step compiled and with its model alone compiled."""

    def __call__(self, function):
        self[function.__name__] = function
        return function

    def run(self, name, step_of, model_of):
        torch.manual_seed(0)
        random.seed(0)
        return list(self[name](step_of, model_of))

    def check(self, name, compiled):
        torchbolt.reset()
        want = self.run(name, as_it_is, as_it_is)
        got = self.run(name, *((torchbolt.compile, as_it_is) if compiled == "step" else (as_it_is, torchbolt.compile)))
        assert len(got) == len(want)
        for step, (ours, eagers) in enumerate(zip(got, want, strict=True)):
            for a, b in zip(ours, eagers, strict=True):
                torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5, msg=lambda m, step=step: f"step {step}: {m}")
        assert torchbolt.stats()["regions"] > 0


def as_it_is(target):
    return target


def mlp(*widths, act=nn.GELU):
    layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


class Data:
    """What is drawn is the same in all runs, since it is drawn beside torch's generator."""

    def __init__(self):
        self.values = torch.Generator().manual_seed(1)

    def randn(self, *sizes):
        return torch.randn(*sizes, generator=self.values)

    def ints(self, n, *sizes):
        return torch.randint(0, n, sizes, generator=self.values)


def state(*modules):
    return [t.detach().clone() for module in modules for t in module.state_dict().values()]
