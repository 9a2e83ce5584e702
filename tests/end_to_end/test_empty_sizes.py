# tests/end_to_end/test_empty_sizes.py
"""Tensors without elements, as x[mask] gives them where nothing is true."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchbolt

CASES = {
    "linear": lambda x: F.linear(x, torch.ones(5, 4)),
    "view": lambda x: (x * 2).view(-1, 2, 2) + 1,
    "reshape": lambda x: x.reshape(0, 2, 2).transpose(1, 2).reshape(0, 4) * 2,
    "sum over none": lambda x: x.sum(0),
    "sum of none": lambda x: x.sum(1),
    "all": lambda x: (x > 0).all(),
    "any": lambda x: (x > 0).any(0),
    "prod": lambda x: x.prod(0) + 1,
    # Rows of one vector that all of a kernel's accumulators see at once.
    "logsumexp over none": lambda x: x.repeat(1, 2).logsumexp(0),
    "sums over none": lambda x: (x.repeat(1, 2).exp().sum(0).log() + 1, (x + 1).amax(1)),
    "softmax over none": lambda x: x.repeat(1, 2).softmax(0),
    "mean": lambda x: x.mean(),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "cat": lambda x: torch.cat([x, x + 1, torch.ones(2, 4)]) * 2,
    "chunk": lambda x: x.chunk(2, -1)[0] * x.chunk(2, -1)[1],
    "matmul over none": lambda x: x.t() @ x + 1,
    "folded, and given too": lambda x: (F.linear(x.t() - 1, x.t() + 1), x.t() * 2),
    "embedding": lambda x: F.embedding(x.long()[:, 0], torch.ones(5, 4)),
    "conv": lambda x: F.conv1d(x.view(0, 2, 2), torch.ones(3, 2, 1)),
    "halves": lambda x: torch.cat((-x[..., 2:], x[..., :2]), -1) * x,
    "attention of no positions": lambda x: F.scaled_dot_product_attention(*[x.view(1, 2, 0, 2)] * 3),
    "attention of no batch": lambda x: F.scaled_dot_product_attention(*[x.view(0, 2, 1, 2)] * 3),
    "expand": lambda x: x[:, None].expand(0, 3, 4).reshape(0, 12) + 1,
    "index": lambda x: x[torch.zeros(0, dtype=torch.long)] * 2,
    "cumsum": lambda x: x.cumsum(0),
    "index_put": lambda x: torch.ones(3, 4).index_put((torch.zeros(0, dtype=torch.long),), x),
    "in place": lambda x: torch.ones(3, 4)[:0].add_(x),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    fn, x = CASES[name], torch.randn(0, 4)
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), fn(x), equal_nan=True)


CONSTANTS = {
    "any": lambda x: torch.ones_like(x).bool().any(0),
    "all": lambda x: torch.zeros_like(x).bool().all(0),
    "sum": lambda x: torch.full_like(x, float("inf")).sum(0),
    "prod": lambda x: torch.full_like(x, 2.0).prod(0),
    "rows": lambda x: torch.full_like(x, 3).sum(1),
    "mean": lambda x: torch.full_like(x, 3).mean(),
    "amax": lambda x: torch.full_like(x, 3).amax(1),
    "logsumexp": lambda x: torch.full_like(x, 3).logsumexp(0),
    "beside x": lambda x: (torch.full_like(x, 3).sum(0), x.sum(0)),
    "expanded": lambda x: torch.full_like(x, 3).expand(3, *x.shape).sum((0, 1)),
}


@pytest.mark.parametrize("dynamic", (None, True))
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_no_rows_are_reduced_as_eager_does(name, dynamic):
    compiled = torchbolt.compile(CONSTANTS[name], dynamic=dynamic)
    for rows in (0, 3, 0, 5, 4, 0, 1):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), CONSTANTS[name](x), equal_nan=True)


def test_a_constant_that_is_reduced_and_given_in_full():
    def fn(x, k):
        y = (x + 1) * k
        z = y.logsumexp(0).clamp_(-1, 1)
        x.transpose(0, -1)[0].mul_(3)
        return z

    compiled = torchbolt.compile(fn)
    for k in (2, 3, 3):
        x = torch.randn(0, 3)
        torch.testing.assert_close(compiled(x, k), fn(x, k))


def test_strides_of_rows_without_elements():
    def fn(x):
        y = x * 2
        return y[0], y[:, None], y[None, 1:].squeeze(0)

    compiled = torchbolt.compile(fn)
    for rows in (6, 7, 8, 9):
        x = torch.randn(0, rows).t()
        assert [t.stride() for t in compiled(x)] == [t.stride() for t in fn(x)]


@torch.no_grad()
def test_attention_without_keys_is_as_large_as_its_queries():
    """Also where the keys' batch would be broadcast to nothing."""
    q, k = torch.randn(1, 1, 3), torch.randn(0, 1, 3)
    attend = torch.nn.functional.scaled_dot_product_attention
    compiled = torchbolt.compile(lambda q, k: attend(q, k, k) + 1)
    for _ in range(2):
        assert torch.equal(compiled(q, k), attend(q, k, k) + 1)
