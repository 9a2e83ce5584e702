# tests/training/test_recurrent_layers.py
"""Recurrent layers whose gradients are eager's affair: their call is a piece of the region, and what is around it is
compiled."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torchbolt


class Model(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = getattr(nn, kind)(8, 6, batch_first=True, **settings)
        width = settings.get("proj_size", 6) * (2 if settings.get("bidirectional") else 1)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 11)

    def forward(self, ids, states=None):
        y, states = self.layer(self.embed(ids), states)
        return F.cross_entropy(self.head(F.gelu(self.norm(y))).flatten(0, 1), ids.flatten()), states


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


def agree(model, *calls, regions=1):
    fast = torchbolt.compile(model)
    for args in calls:
        want, got = (f(*args) for f in (model, fast))
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(gradients(model, got[0]), gradients(model, want[0]))
    stats = torchbolt.stats()
    assert (stats["eager_fallbacks"], stats["graph_breaks"]) == (0, 0)
    assert stats["regions"] == regions
    return fast


@pytest.mark.parametrize("settings", [{}, {"num_layers": 2}, {"bidirectional": True}, {"bias": False}], ids=str)
def test_a_librarys_layer(settings):
    agree(Model("LSTM", **settings), *[(torch.randint(11, (3, 7)),) for _ in range(3)])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_lengths_and_batches(kind):
    shapes = [(2, 5), (3, 7), (4, 9), (2, 40), (5, 12)]
    agree(Model(kind, num_layers=2), *[(torch.randint(11, shape),) for shape in shapes], regions=2)


@pytest.mark.parametrize("kind, pieces", [("GRU", 3), ("RNN", 3)])
def test_many_steps_are_one_call(kind, pieces):
    fast = agree(Model(kind), *[(torch.randint(11, (2, 50)),) for _ in range(2)])
    (region,) = torchbolt.api.compiled_of(fast)._regions()
    assert region["graph"].count("# piece") == pieces and "by eager" in region["graph"]


def test_few_steps_are_written_out():
    fast = agree(Model("GRU"), *[(torch.randint(11, (2, 5)),) for _ in range(2)])
    (region,) = torchbolt.api.compiled_of(fast)._regions()
    assert "by eager" not in region["graph"]


def test_what_the_library_does_not_take():
    agree(Model("LSTM", proj_size=4), *[(torch.randint(11, (2, 5)),) for _ in range(2)])


def test_states_go_from_one_call_to_the_next():
    model = Model("LSTM")
    fast = torchbolt.compile(model)
    ids = torch.randint(11, (5, 3, 7))
    found = []
    for f in (model, fast):
        states, seen = (torch.zeros(1, 3, 6), torch.zeros(1, 3, 6)), []
        for part in ids:
            loss, states = f(part, states)
            seen += [loss, *gradients(model, loss + states[0].sum())]
            states = tuple(s.detach() for s in states)
        found.append(seen)
    torch.testing.assert_close(found[1], found[0])
    assert torchbolt.stats()["eager_fallbacks"] == 0


class Packed(Model):
    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.embed(ids) * 1.5, lengths, batch_first=True, enforce_sorted=False)
        y, _ = self.layer(packed)
        y, _ = pad_packed_sequence(y, batch_first=True)
        return self.head(F.gelu(self.norm(y))).square().mean(), None


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences(kind):
    model = Packed(kind)
    fast = torchbolt.compile(model)
    for lengths in ([7, 3, 5], [7, 3, 5], [4, 6, 7]):
        args = torch.randint(11, (3, 7)), torch.tensor(lengths)
        want, got = model(*args)[0], fast(*args)[0]
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(gradients(model, got), gradients(model, want))


def test_steps_with_an_optimizer():
    found = []
    for compiled in (lambda f: f, torchbolt.compile):
        torch.manual_seed(3)
        model = Model("LSTM", num_layers=2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        @compiled
        def step(ids, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(ids)[0]
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        losses = [step(torch.randint(11, (4, 9), generator=torch.Generator().manual_seed(i))) for i in range(6)]
        found.append([*losses, *[p.detach() for p in model.parameters()]])
    torch.testing.assert_close(found[1], found[0])
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_dropout_between_layers_draws_as_eager_does():
    model = Model("LSTM", num_layers=3, dropout=0.5)
    fast = torchbolt.compile(model)
    ids = torch.randint(11, (3, 7))
    for seed in range(4):
        seen = []
        for f in (model, fast):
            torch.manual_seed(seed)
            loss, _ = f(ids)
            seen.append([loss, *gradients(model, loss), torch.rand(1)])
        torch.testing.assert_close(seen[1], seen[0])


def test_parts_that_are_frozen():
    model = Model("LSTM")
    agree(copy.deepcopy(model).requires_grad_(True), (torch.randint(11, (2, 6)),))
    torchbolt.reset()
    for p in [*model.embed.parameters(), *model.layer.parameters()]:
        p.requires_grad_(False)
    fast, ids = torchbolt.compile(model), torch.randint(11, (2, 6))
    for _ in range(2):
        want, got = model(ids)[0], fast(ids)[0]
        torch.testing.assert_close(got, want)
    got.backward()
    assert model.layer.weight_ih_l0.grad is None and model.head.weight.grad is not None
    assert torchbolt.stats()["eager_fallbacks"] == 0
