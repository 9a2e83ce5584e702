"""Random numbers from generators that a program is handed."""

import random

import pytest
import torch
from rows import HIT, MISS, Lazy, Rows, positive, randn

import torchbolt

ROWS = Rows()
GENERATOR = torch.Generator()
SAME = Lazy(lambda: GENERATOR.manual_seed(3))
ANOTHER = Lazy(lambda: torch.Generator().manual_seed(3))

for text in (
    "torch.randn(4, generator=g) * 2 + x",
    "torch.rand(4, generator=g) + torch.rand(4, generator=g) * x",
    "torch.randn(4, generator=g) + torch.rand(4) * x",
    "torch.randint(0, 9, (4,), generator=g) * x",
    "torch.randperm(4, generator=g) * x",
    "torch.normal(x, 1.0, generator=g) * 2",
    "torch.bernoulli(x.sigmoid(), generator=g) * x",
    "torch.multinomial(x.exp(), 3, generator=g) * 2",
    "x.clone().normal_(generator=g) + 1",
    "x.clone().uniform_(-1, 1, generator=g).sin()",
    "x.clone().exponential_(generator=g).sin()",
    "torch.nn.init.normal_(x.clone(), generator=g) + 1",
    "x[torch.randperm(4, generator=g)] * 2",
):
    ROWS.text(text, x=randn(4), g=SAME)


@ROWS(randn(4), ANOTHER, expect=(MISS, MISS, MISS, HIT, HIT), regions=3, ends="torch._C.Generator from outside")
def another_one_each_time(x, g):
    return torch.randn(4, generator=g) * x.sin()


@ROWS.made(positive(4), SAME)
def held_by_a_module():
    class Drops(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = GENERATOR

        def forward(self, x, _):
            kept = torch.rand(x.shape, generator=self.generator) > 0.5
            return torch.where(kept, x * 2, 0.0)

    return Drops()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_drawn_numbers(row):
    row.check()


@pytest.mark.parametrize("backend, ends", [("eager", 0), ("aot_eager", 0), (lambda graph, _: graph, 1)])
def test_backends(backend, ends):
    def program(x, g):
        return torch.rand(4, generator=g) + x.sin()

    torchbolt.reset()
    compiled = torchbolt.compile(program, backend=backend)
    for _ in range(3):
        want = program(torch.ones(4), GENERATOR.manual_seed(1))
        torch.testing.assert_close(compiled(torch.ones(4), GENERATOR.manual_seed(1)), want)
    assert torchbolt.stats()["region_ends"] == ends


def test_draws_go_on_where_the_last_call_left_them():
    def program(x, g):
        return torch.rand(4, generator=g) + x.sin()

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    mine, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for _ in range(4):
        torch.testing.assert_close(compiled(torch.ones(4), mine), program(torch.ones(4), theirs))
        assert torch.equal(mine.get_state(), theirs.get_state())
    assert torchbolt.stats()["region_ends"] == 0 and torchbolt.stats()["recordings"] == 1


def test_a_generator_that_was_given_another_source():
    def fn(numbers):
        generator = random.Random()
        generator.random = numbers[:].pop
        return [generator.triangular(0.0, 1.0, 1 / 3) for _ in range(20)]

    numbers = [i / 21 for i in range(1, 21)]
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        assert compiled(numbers) == fn(numbers)
