# tests/training/test_sparse_embeddings.py
"""Embeddings whose gradients are sparse: their call is a piece of the region that eager differentiates, and what is around it
is compiled."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 6, padding_idx=0, sparse=True)
        self.head = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))

    def forward(self, ids, offsets):
        return F.cross_entropy(self.head(self.embed(ids).mean(1) * 2), ids[:, 0] % 3)


class Bags(Words):
    def __init__(self, **settings):
        super().__init__()
        self.embed = nn.EmbeddingBag(50, 6, sparse=True, **settings)

    def forward(self, ids, offsets):
        pooled = self.embed(ids.flatten() + 0, offsets)
        return self.head(pooled.sin()).square().mean()


class TwoTables(Words):
    def __init__(self):
        super().__init__()
        self.other = nn.Embedding(50, 6, sparse=True)

    def forward(self, ids, offsets):
        return self.head(self.embed(ids) * self.other(ids.flip(0)).tanh()).square().mean(), self.embed.weight[ids].sum()


def offsets_of(ids, with_last):
    rows, length = ids.shape
    return torch.arange(rows + with_last) * length


MODELS = [
    (Words, {}),
    (TwoTables, {}),
    (Bags, {"mode": "sum"}),
    (Bags, {"mode": "mean"}),
    (Bags, {"mode": "mean", "include_last_offset": True}),
]


@pytest.mark.parametrize("make, settings", MODELS, ids=str)
@pytest.mark.parametrize("sizes", [[(4, 7)] * 4, [(4, 7), (5, 9), (3, 4), (6, 6)]], ids=["fixed", "differ"])
def test_gradients(make, settings, sizes):
    model = make(**settings)
    fast = torchbolt.compile(model)
    for size in sizes:
        ids = torch.randint(50, size)
        offsets = offsets_of(ids, settings.get("include_last_offset", False))
        seen = []
        for each in (model, fast):
            model.zero_grad()
            losses = each(ids, offsets)
            losses = losses if isinstance(losses, tuple) else (losses,)
            sum(losses).backward()
            seen.append([[loss.detach() for loss in losses], *[p.grad.to_dense().clone() for p in model.parameters()]])
            assert model.embed.weight.grad.is_sparse or make is TwoTables
        torch.testing.assert_close(seen[1], seen[0])
    stats = torchbolt.stats()
    assert (stats["eager_fallbacks"], stats["graph_breaks"]) == (0, 0)
    assert stats["regions"] == len(set(sizes[:2]))


@pytest.mark.parametrize("whole", [False, True])
def test_a_loop_with_an_optimizer_for_them(whole):
    def losses(compiled):
        torch.manual_seed(0)
        model = Words()
        sparse = torch.optim.SparseAdam([model.embed.weight], lr=0.05)
        dense = torch.optim.AdamW(model.head.parameters(), lr=0.01)

        def step(ids):
            sparse.zero_grad()
            dense.zero_grad()
            loss = forward(ids, None)
            loss.backward()
            sparse.step()
            dense.step()
            return loss.detach()

        forward = model if whole else compiled(model)
        run = compiled(step) if whole else step
        for _ in range(6):
            yield run(torch.randint(50, (4, 7))), copy.deepcopy(model.state_dict())

    torch.testing.assert_close(list(losses(torchbolt.compile)), list(losses(lambda each: each)))
    assert torchbolt.stats()["eager_fallbacks"] == 0
