# tests/training/test_chain_sizes.py
"""Sizes that differ between calls, where one result of a compiled function is made of another."""

import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed, self.place = nn.Embedding(11, width), nn.Embedding(32, width)
        self.first, self.norm = nn.Linear(width, 3 * width), nn.LayerNorm(width)
        self.head = nn.Linear(width, 11)

    def forward(self, ids, labels, rate):
        b, t = ids.shape
        x = self.embed(ids) + self.place(torch.arange(t))
        q, k, v = (part.view(b, t, 2, -1).transpose(1, 2) for part in self.first(x).chunk(3, -1))
        y = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)
        logits = self.head(self.norm(y))
        return F.cross_entropy(logits.view(-1, 11), (labels + 0 * ids).view(-1)) * rate, logits, x, y


def test_lengths_batches_and_rates():
    model = Model()
    fast = torchbolt.compile(model)
    for b, t, rate in ((2, 5, 0.5), (3, 7, 0.25), (4, 9, 0.3), (2, 12, 0.7), (5, 5, 0.9), (3, 7, 0.2)):
        ids, labels = torch.randint(11, (b, t)), torch.randint(11, (b, t))
        seen = []
        for m in (model, fast):
            loss, logits, x, y = m(ids, labels, rate)
            for h in (logits, x, y):
                h.retain_grad()
            (loss + y.sin().sum()).backward()
            seen.append([loss, logits.grad, x.grad, y.grad, *(p.grad.clone() for p in model.parameters())])
            model.zero_grad()
        torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-5)
    stats = torchbolt.stats()
    assert (stats["eager_fallbacks"], stats["graph_breaks"]) == (0, 0)
    regions = torchbolt.api.compiled_of(fast)._regions()
    assert len(regions) == 2
    assert all(r["graph"].count("# piece") == 0 and not r["why_replayed"] for r in regions)


def test_a_size_that_only_a_later_piece_asks_for():
    def fn(x, w):
        h = x.tanh()
        return h, (h @ w).relu(), h.view(2, -1).sum(1)

    fast = torchbolt.compile(fn)
    for n in (6, 8, 10, 12, 6):
        x, w = torch.randn(n, n, requires_grad=True), torch.randn(n, 3, requires_grad=True)
        seen = []
        for f in (fn, fast):
            h, y, z = f(x, w)
            seen.append(torch.autograd.grad(y.sum() + z.sin().sum(), [h, x, w]))
        torch.testing.assert_close(*seen)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_piece_that_is_given_nothing_but_a_size():
    """States between two layers that are pieces of their own."""
    first, second = nn.LSTM(4, 6, batch_first=True), nn.LSTM(6, 5, batch_first=True)

    def fn(x):
        y = first(x)[0]
        zeros = torch.zeros(1, x.shape[0], 5)
        return second(y, (zeros, zeros))[0]

    fast = torchbolt.compile(fn)
    for b, t in ((3, 4), (3, 6), (4, 5), (6, 7), (2, 4)):
        seen = []
        for f in (fn, fast):
            x = torch.randn(b, t, 4, generator=torch.Generator().manual_seed(b)).requires_grad_()
            y = f(x)
            seen.append([y, *torch.autograd.grad(y.square().sum(), [x, *first.parameters()])])
        torch.testing.assert_close(*seen)
    assert torchbolt.stats()["eager_fallbacks"] == 0
