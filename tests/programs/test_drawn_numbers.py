# tests/programs/test_drawn_numbers.py
"""Random numbers from generators that a program is handed, or makes."""

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor

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


@ROWS(randn(4), ANOTHER)
def another_one_each_time(x, g):
    return torch.randn(4, generator=g) * x.sin()


@ROWS(randn(4), ANOTHER, ANOTHER, calls=((randn(4), ANOTHER, ANOTHER), (randn(4), SAME, SAME)))
def two_of_them(x, g, h):
    return torch.randn(4, generator=g) * x, torch.rand(4, generator=h) + torch.rand(4, generator=g)


@ROWS(calls=[(randn(4), ANOTHER, seed) for seed in (3, 1, 8, 9)], expect=(MISS, MISS, HIT, HIT), regions=2)
def seeded_by_the_program(x, g, seed):
    g.manual_seed(seed)
    first = torch.rand(4, generator=g) * x
    return first + torch.rand(4, generator=g.manual_seed(5)), torch.rand(4, generator=g)


SEEDS = [(randn(4), seed) for seed in (3, 1, 8, 9)]


@ROWS(randn(4))
def made_with_its_usual_seed(x):
    g = torch.Generator()
    return torch.randn(4, generator=g) + x, torch.rand(4, generator=g)


@ROWS(calls=SEEDS, expect=(MISS, MISS, HIT, HIT), regions=2)
def made_and_seeded(x, seed):
    g = torch.Generator(device=x.device).manual_seed(seed)
    order = torch.randperm(4, generator=g)
    return x[order] + torch.randn(4, generator=g), torch.rand(4)


@ROWS(
    calls=[(randn(4, requires_grad=True), seed) for seed in (3, 1, 8, 9)],
    expect=(MISS, MISS, HIT, HIT),
    regions=2,
    grad=True,
)
def made_where_gradients_are_wanted(x, seed):
    g = torch.Generator()
    g.manual_seed(seed + 1)
    return (x * torch.rand(4, generator=g)).sum()


@ROWS(randn(4))
def one_for_each_sample(x):
    some = [torch.Generator().manual_seed(i) for i in range(3)]
    return torch.stack([torch.randn(4, generator=g) for g in some]) * x + torch.rand(4, generator=some[1])


@ROWS(randn(4), expect=(MISS, HIT, HIT))
def seeded_with_a_number_below_0(x):
    return torch.rand(4, generator=torch.Generator().manual_seed(-3)) * x


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


def made(x, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(4, generator=g) + x.sin() * torch.rand(4, generator=g)


@pytest.mark.parametrize("options", [{"backend": "eager"}, {"backend": "aot_eager"}, {"dynamic": True}])
def test_roads(options):
    torchbolt.reset()
    compiled = torchbolt.compile(made, **options)
    for seed in range(4):
        torch.testing.assert_close(compiled(torch.ones(4), seed), made(torch.ones(4), seed))
    assert torchbolt.stats()["region_ends"] == 0


class Another(torch.Generator):
    pass


def test_a_class_of_the_users():
    def program(x):
        g = Another()
        return x * torch.rand(4, generator=g.manual_seed(3)), g

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for _ in range(4):
        (got, g), (want, h) = compiled(torch.ones(4)), program(torch.ones(4))
        torch.testing.assert_close(got, want)
        assert type(g) is Another and torch.equal(g.get_state(), h.get_state())


def test_a_class_of_the_users_from_outside():
    def program(x, g):
        return x * torch.rand(4, generator=g)

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for seed in range(4):
        mine, theirs = Another(), Another()
        mine.manual_seed(seed), theirs.manual_seed(seed)
        torch.testing.assert_close(compiled(torch.ones(4), mine), program(torch.ones(4), theirs))
        assert torch.equal(mine.get_state(), theirs.get_state())


def test_one_that_is_needed_behind_an_end():
    def program(x, seed):
        g = torch.Generator().manual_seed(seed)
        y = x * torch.rand(4, generator=g)
        torchbolt.graph_break()
        return y + torch.rand(4, generator=g), g

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for seed in (3, 1, 4, 1, 5, 9, 2, 6):
        got, mine = compiled(torch.ones(4), seed)
        want, theirs = program(torch.ones(4), seed)
        torch.testing.assert_close(got, want)
        assert torch.equal(mine.get_state(), theirs.get_state())
    recordings = torchbolt.stats()["recordings"]
    compiled(torch.ones(4), 7)
    assert torchbolt.stats()["recordings"] == recordings


def test_many_threads_make_their_own():
    torchbolt.reset()
    compiled = torchbolt.compile(made)
    compiled(torch.ones(4), 1), compiled(torch.ones(4), 2)

    def run(seed):
        for _ in range(200):
            assert torch.allclose(compiled(torch.ones(4), seed), made(torch.ones(4), seed))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(4)))


def test_what_failed_draws_the_same_again():
    def program(x, rows, g):
        return torch.rand(4, generator=g) + x[rows]

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    mine, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for rows in ([0, 1, 2, 3], [1, 1, 1, 1], [0, 9, 2, 3], [2, 3, 1, 0]):
        for fn, g in ((compiled, mine), (program, theirs)):
            with pytest.raises(IndexError) if 9 in rows else contextlib.nullcontext():
                fn(torch.ones(4), torch.tensor(rows), g)
        assert torch.equal(mine.get_state(), theirs.get_state())


def test_a_generator_that_was_given_another_source():
    def fn(numbers):
        generator = random.Random()
        generator.random = numbers[:].pop
        return [generator.triangular(0.0, 1.0, 1 / 3) for _ in range(20)]

    numbers = [i / 21 for i in range(1, 21)]
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        assert compiled(numbers) == fn(numbers)
