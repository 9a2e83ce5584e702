# tests/training/test_recurrent_layers.py
"""Recurrent layers whose gradients are eager's affair: their call is a piece of the region, and what is around it is
compiled."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

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
    """Given how many steps each of its sequences has."""

    def __init__(self, kind, sort=True, total=None, **settings):
        super().__init__(kind, **settings)
        self.sort, self.total = sort, total

    def pack(self, rows, lengths):
        return pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=not self.sort)

    def forward(self, ids, lengths, states=None):
        y, _ = self.layer(self.pack(self.embed(ids) * 1.5, lengths), states)
        y, lengths = pad_packed_sequence(y, batch_first=True, total_length=self.total)
        return (self.head(F.gelu(self.norm(y))).sum(1) / lengths[:, None]).square().mean(), None


class LossOfPacked(Packed):
    """As many labels as there are steps in all."""

    def forward(self, ids, lengths):
        y, _ = self.layer(self.pack(self.embed(ids), lengths))
        return F.cross_entropy(self.head(torch.tanh(self.norm(y.data))), self.pack(ids, lengths).data), None


def sequences(count=7, batch=3, sort=False, steps=None):
    """Of other lengths each time."""
    g = torch.Generator().manual_seed(0)
    for _ in range(count):
        lengths = torch.randint(2, 12, (batch,), generator=g)
        lengths = lengths.sort(descending=True)[0] if sort else lengths
        yield torch.randint(11, (batch, steps or int(lengths.max())), generator=g), lengths


@pytest.mark.parametrize("settings", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_packed_sequences(kind, settings):
    """One region for the first lengths, and one for all others."""
    agree(Packed(kind, **settings), *sequences(), regions=2)
    assert torchbolt.stats()["recordings"] == 2


@pytest.mark.parametrize(
    "settings",
    [{"sort": False}, {"total": 14}, {"proj_size": 4}, {"num_layers": 3, "dropout": 0.0}],
    ids=str,
)
def test_packed_sequences_otherwise(settings):
    agree(Packed("LSTM", **settings), *sequences(sort=not settings.get("sort", True)), regions=2)


def test_packed_sequences_of_one_batch_that_is_padded_alike():
    """What differs is data alone."""
    agree(Packed("GRU"), *sequences(steps=12), regions=1)


def test_packed_sequences_of_other_batches():
    calls = [call for batch in (4, 4, 4, 3, 4, 5) for call in sequences(1, batch)]
    agree(Packed("LSTM"), *sequences(3), *calls, *sequences(2, 6, sort=True), regions=3)


def test_states_of_packed_sequences():
    model = Packed("LSTM")
    states = torch.randn(1, 3, 6), torch.randn(1, 3, 6)
    agree(model, *[(*call, states) for call in sequences()], regions=2)


def test_a_loss_over_packed_sequences():
    agree(LossOfPacked("LSTM"), *sequences(), regions=2)


def test_lengths_in_a_list():
    model = Packed("LSTM")
    agree(model, *[(ids, lengths.tolist()) for ids, lengths in sequences()], regions=3)


class PackedRows(Model):
    def forward(self, rows):
        _, (last, _) = self.layer(pack_sequence([self.embed(row) for row in rows], enforce_sorted=False))
        return self.head(self.norm(last[-1])).square().mean(), None


def test_sequences_that_a_model_packs():
    """As many sizes that differ as sequences: how many rows they have in all is a sum of all of them."""
    rows = [([row[:n].clone() for row, n in zip(ids, lengths, strict=True)],) for ids, lengths in sequences(batch=5)]
    agree(PackedRows("LSTM"), *rows, regions=3)


def test_packed_sequences_that_are_too_long():
    """The check of the length that is asked for is part of the program; its error is eager's."""
    fast = agree(Packed("LSTM", total=11), *sequences(steps=12), regions=1)
    with pytest.raises(ValueError, match="at least the length of the longest sequence"):
        fast(torch.randint(11, (3, 12)), torch.tensor([12, 5, 3]))


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
