# tests/end_to_end/over_sizes.py
"""Programs that are called with one size after the other: what tests of sizes that differ share."""

from __future__ import annotations

import torch
from torch import nn

import torchbolt

torch.manual_seed(0)
LINEAR = nn.Linear(16, 24).eval()
NORM = nn.LayerNorm(24).eval()

# Batch and length differ at the second call, so that both are symbols from then on.
SIZES = [(2, 8), (3, 9), (5, 12), (4, 6), (7, 10), (9, 9), (2, 8), (6, 7)]


def pointwise(x):
    return torch.relu(x) * 2 + 1


def norm(x):
    return NORM(LINEAR(x)).softmax(-1)


def leaves(value):
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def check(compiled, fn, x):
    mine = x.clone()
    with torch.no_grad():
        want, got = fn(x), compiled(mine)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    assert [t.stride() for t in leaves(got)] == [t.stride() for t in leaves(want)]
    assert torch.equal(mine, x)


def regions(compiled):
    return torchbolt.stats()["regions"]
