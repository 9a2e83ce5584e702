# bench/models/dlrm.py
"""Sizes -> a recommendation model (DLRM, Naumov et al.).

Summed embedding bags, a bottom MLP, pairwise dot products of the results (upper triangle), a top MLP.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

TABLES, DENSE, BAG = 8, 13, 4


def mlp(*widths):
    layers = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    def __init__(self, rows, hidden, width=64):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(TABLES))
        self.bottom = mlp(DENSE, hidden, width)
        n = TABLES + 1
        self.top = mlp(width + n * (n - 1) // 2, hidden, hidden // 2, 1)
        upper = torch.triu_indices(n, n, 1)
        self.register_buffer("pairs", upper[0] * n + upper[1])

    def forward(self, dense, sparse):
        low = self.bottom(dense).relu()
        vectors = torch.stack([low, *(bag(ids) for bag, ids in zip(self.bags, sparse, strict=True))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.top(torch.cat([low, dots], dim=1))).squeeze(1)


def build(batch, rows, hidden):
    sparse = torch.randint(0, rows, (TABLES, batch, BAG))
    return Dlrm(rows, hidden), (torch.randn(batch, DENSE), sparse), {}
