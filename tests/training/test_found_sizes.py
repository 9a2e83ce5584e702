# tests/training/test_found_sizes.py
"""Gradients behind operators that find sizes out: one region, whose pieces know the sizes of what they are given. A
whole step ends before its backward pass, and nowhere else."""

import copy

import pytest
import torch
from torch import nn

import torchbolt


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.line = nn.Embedding(30, 8), nn.Linear(8, 8)


class Unique(Model):
    def forward(self, x):
        found, where, counts = torch.unique(x, return_inverse=True, return_counts=True)
        return torch.tanh(self.line(self.embed(found)) * counts[:, None])[where]


class UniqueInARow(Model):
    def forward(self, x):
        found, counts = torch.unique_consecutive(x.sort()[0], return_counts=True)
        return (self.line(self.embed(found)) * counts[:, None]).mean(0)


class Counted(Model):
    def forward(self, x):
        counts = torch.bincount(x)
        return self.line(self.embed(torch.arange(counts.shape[0]))) * counts[:, None], self.embed(x) / counts[x][
            :, None
        ]


class Places(Model):
    def forward(self, x):
        places = (x > 2).nonzero(as_tuple=True)[0]
        return torch.zeros(x.shape[0], 8).index_add(0, places, self.line(self.embed(x)[places]))


class RowsOfProducts(Model):
    """Products are worth having fewer rows."""

    def forward(self, x):
        rows = torch.tanh(self.line(self.embed(x))[x > 2])
        return self.line(rows).square().sum(1)


class SumsOfGraphs(Model):
    """Which graph each node is of; how many there are is data."""

    def forward(self, x):
        graph = x % 5
        count = int(graph.max()) + 1
        nodes = self.line(self.embed(x))
        size = torch.zeros(count).index_add(0, graph, torch.ones(x.shape[0]))
        return torch.zeros(count, 8).index_add(0, graph, nodes) / size[:, None].clamp(min=1)


class Repeated(Model):
    def forward(self, x):
        rows = self.line(self.embed(x)).repeat_interleave(x % 3 + 1, dim=0)
        return (
            torch.tanh(rows),
            self.embed(x).repeat_interleave(x[:1] % 4 + 1, dim=-2),
            x.repeat_interleave(x % 2 + 1) * 0.1,
        )


class TwoInARow(Model):
    def forward(self, x):
        found = torch.unique(x)
        h = torch.relu(self.line(self.embed(found)))
        again = torch.unique(found // 2)
        return h.sum(0), (self.line(self.embed(again)) @ h.T).mean(1)


MODELS = [Unique, UniqueInARow, Counted, Places, RowsOfProducts, SumsOfGraphs, Repeated, TwoInARow]


def numbers(count=8):
    return [torch.randint(0, 5 + i % 5, (12,), generator=torch.Generator().manual_seed(i)) for i in range(count)]


def loss_of(out):
    return sum(part.square().mean() for part in out) if isinstance(out, tuple) else out.square().mean()


@pytest.mark.parametrize("make", MODELS)
def test_a_model_is_one_region(make):
    torch.manual_seed(0)
    model = make()
    fast = torchbolt.compile(model)
    for x in numbers():
        seen = []
        for f in (model, fast):
            model.zero_grad()
            out = f(x)
            loss_of(out).backward()
            seen.append([out, *[p.grad for p in model.parameters()]])
        torch.testing.assert_close(*seen)
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["region_ends"], stats["eager_fallbacks"]) == (1, 0, 0), stats


@pytest.mark.parametrize("make", MODELS)
def test_a_step_ends_before_its_backward_pass(make):
    torch.manual_seed(0)
    found = []
    model = make()
    for wrap in (lambda f: f, torchbolt.compile):
        trained = copy.deepcopy(model)
        opt = torch.optim.AdamW(trained.parameters(), 1e-3)

        @wrap
        def step(x, trained=trained, opt=opt):
            opt.zero_grad()
            loss = loss_of(trained(x))
            loss.backward()
            opt.step()
            return loss.detach()

        found.append([*[step(x) for x in numbers()], *[p.detach() for p in trained.parameters()]])
    torch.testing.assert_close(*found)
    stats = torchbolt.stats()
    assert list(stats["break_reasons"]) == ["calls torch.autograd.graph._engine_run_backward"], stats["break_reasons"]
    assert stats["eager_fallbacks"] == 0 and stats["regions"] <= 3


def test_sizes_that_a_program_was_not_made_for():
    """Of one row, or of none: such a call is eager's."""
    torch.manual_seed(0)
    model = Unique()
    fast = torchbolt.compile(model)
    for i, x in enumerate([*numbers(5), torch.full((12,), 3), *numbers(2)]):
        seen = []
        for f in (model, fast):
            model.zero_grad()
            loss = loss_of(f(x))
            loss.backward()
            seen.append([loss, *[p.grad for p in model.parameters()]])
        torch.testing.assert_close(*seen, msg=str(i))
    assert torchbolt.stats()["recordings"] == 1 and torchbolt.stats()["eager_fallbacks"] == 1


def test_numbers_that_are_no_sizes():
    """A negative number of rows raises, in eager."""

    def fn(x, w):
        return (torch.zeros(int(x.max()), 3) + w).sum()

    fast, w = torchbolt.compile(fn), torch.randn(3, requires_grad=True)
    for n in (4, 6, 5, 3):
        torch.testing.assert_close(fast(torch.tensor([1, n]), w), fn(torch.tensor([1, n]), w))
    with pytest.raises(RuntimeError, match="negative"):
        fast(torch.tensor([-4, -2]), w)


def test_gradients_of_gradients():
    torch.manual_seed(0)
    model = RowsOfProducts()
    fast = torchbolt.compile(model)
    for x in numbers(4):
        seen = []
        for f in (model, fast):
            (first,) = torch.autograd.grad(f(x).sum(), [model.line.weight], create_graph=True)
            seen.append([first, *torch.autograd.grad(first.square().sum(), [*model.parameters()])])
        torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-5)


class LabelsOfGraphs(SumsOfGraphs):
    """As many labels as graphs: that size is the batch's, which is looked at when it is found."""

    def forward(self, x, labels):
        return torch.nn.functional.cross_entropy(super().forward(x), labels)


@pytest.mark.parametrize("grad", [True, False])
def test_a_size_that_is_taken_for_a_known_one(grad):
    torch.manual_seed(0)
    model = LabelsOfGraphs()
    fast = torchbolt.compile(model)
    calls = [torch.arange(12 + i) % (2 + i % 4) for i in range(8)]
    with torch.set_grad_enabled(grad):
        for x in calls:
            labels = torch.zeros(int(x.max()) + 1, dtype=torch.long)
            torch.testing.assert_close(fast(x, labels), model(x, labels))
    stats = torchbolt.stats()
    assert (stats["region_ends"], stats["eager_fallbacks"]) == (0, 0) and stats["recordings"] <= 3, stats
    with pytest.raises(ValueError, match="batch_size"):
        fast(torch.arange(12) % 4, torch.zeros(3, dtype=torch.long))
