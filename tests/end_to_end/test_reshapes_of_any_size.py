# tests/end_to_end/test_reshapes_of_any_size.py
"""Whether a reshape shows the same memory rests on sizes: what was a copy for some is a view for others."""

from __future__ import annotations

import pytest
import torch

import torchbolt


def turned(x):
    return x.t().reshape(x.shape)


def turned_and_written(x):
    y = x + 1
    y.t().reshape(x.shape).mul_(2)
    return y


def joined(x):
    y = x + 1
    y[:, ::2].reshape(-1, x.shape[0]).mul_(2)
    return y


def turned_within(x):
    """Only the strides of what is computed from it tell."""
    y = (x - x).t().reshape(x.shape[0], 1, 8)
    return y.diff(dim=-1)


@pytest.mark.parametrize("fn", [turned, turned_and_written, joined, turned_within])
@pytest.mark.parametrize("dynamic", [None, True])
def test_copies_that_are_views_of_other_sizes(fn, dynamic):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=dynamic)
    for n in (7, 6, 5, 8, 9, 8, 4, 16, 3, 8):
        mine, eagers = torch.arange(8.0 * n).reshape(n, 8), torch.arange(8.0 * n).reshape(n, 8)
        got, want = compiled(mine), fn(eagers)
        assert torch.equal(got, want) and torch.equal(mine, eagers)
        assert got.stride() == want.stride()
        assert (got.data_ptr() == mine.data_ptr()) == (want.data_ptr() == eagers.data_ptr())
    assert torchbolt.stats()["recordings"] <= 5 and torchbolt.stats()["eager_fallbacks"] == 0


def test_views_that_other_sizes_have_not():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: x.t().view(x.shape) * 2, dynamic=True)
    for n in (8, 7, 8, 6):
        x = torch.arange(8.0 * n).reshape(n, 8)
        if n == 8:
            assert torch.equal(compiled(x), x.t() * 2)
        else:
            with pytest.raises(RuntimeError, match="view size is not compatible"):
                compiled(x)


def heads(x, w):
    b, t, _ = x.shape
    q = (x @ w).view(b, t, 4, 8).transpose(1, 2)
    return (q * 2).transpose(1, 2).reshape(b, t, 32), q.reshape(b, 4, t * 8), q.transpose(1, 2).reshape(b * t, 32)


def test_heads_of_attention_are_one_program():
    torchbolt.reset()
    compiled = torchbolt.compile(heads, dynamic=True)
    for b, t in ((2, 5), (3, 7), (4, 9), (2, 32), (32, 8), (8, 4), (5, 32)):
        x, w = torch.randn(b, t, 16), torch.randn(16, 32)
        for got, want in zip(compiled(x, w), heads(x, w), strict=True):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()
    assert torchbolt.stats()["recordings"] == 1
