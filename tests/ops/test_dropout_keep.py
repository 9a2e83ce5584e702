# tests/ops/test_dropout_keep.py
"""torchbolt::dropout_keep, which dropout on CUDA is made of: compiled kernels against the same in ATen's operators."""

from __future__ import annotations

import pytest
import torch

import torchbolt

keep = torch.ops.torchbolt.dropout_keep
STATE = torch.tensor([-0x123456789ABCDEF1, 4 * 77])


def masked(state, x):
    return torch.ops.aten.native_dropout_backward(x, keep(state, x.shape, 0.75, 8, 512), 4 / 3)


@pytest.mark.parametrize("sizes", [(3, 8), (16, 64), (40, 1024), (7, 24), (5,), (2, 3, 4, 5), (0, 4)], ids=str)
@pytest.mark.parametrize("vector", [4, 8, 16])
def test_compiled_numbers_are_those_of_the_operators(sizes, vector):
    torchbolt.reset()

    def f(state, x):
        return keep(state, x.shape, 0.75, vector, 512), x * keep(state, x.shape, 0.5, vector, 256)

    compiled, x = torchbolt.compile(f), torch.randn(sizes)
    for _ in range(2):
        for got, want in zip(compiled(STATE, x), f(STATE, x), strict=True):
            assert torch.equal(got, want)
    assert torchbolt.explain(f)(STATE, x).library_calls == 0


def test_known_numbers():
    # The first block of the known answers of Philox: its numbers over 2**32 are .399, .881, .736, .606.
    assert keep(torch.tensor([0, 0]), [4], 0.7, 4, 256).tolist() == [True, False, False, True]


def test_seeds_and_sizes_differ_between_calls():
    torchbolt.reset()
    compiled = torchbolt.compile(masked)
    for rows in (3, 8, 20, 64, 100):
        for seed in (1, 2**62, -1):
            state, x = torch.tensor([seed, 4 * rows]), torch.randn(rows, 40)
            assert torch.equal(compiled(state, x), masked(state, x))
    assert torchbolt.stats()["regions"] <= 2


def test_other_probabilities_drop_other_shares():
    for p in (0.1, 0.5, 0.9):
        share = keep(STATE, [100000], p, 8, 512).double().mean().item()
        assert abs(share - p) < 0.01


def test_turned_and_sliced_masks():
    def f(state, x):
        m = keep(state, x.shape, 0.5, 4, 256)
        return x.t() * m.t(), m[2:5, 1::2], torch.where(m, x, 0).sum(0)

    torchbolt.reset()
    compiled, x = torchbolt.compile(f), torch.randn(8, 12)
    for _ in range(2):
        for got, want in zip(compiled(STATE, x), f(STATE, x), strict=True):
            torch.testing.assert_close(got, want)
