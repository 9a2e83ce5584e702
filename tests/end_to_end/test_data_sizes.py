"""Operators whose result has as many elements as their operands' data says, each called with data that differs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torchbolt


def packed(m):
    lengths = (m + 1).sort(descending=True)[0]
    return pack_padded_sequence(torch.arange(60.0).view(6, 10), lengths, batch_first=True)


PROGRAMS = {
    "where": lambda m: torch.where(m > 1)[0] * 2,
    "where_of_two_dims": lambda m: [t + 1 for t in torch.where(m.view(2, 3) > 1)],
    "where_of_three": lambda m: torch.where(m > 1, m, 0) * 2,
    "one_hot": lambda m: F.one_hot(m) * 2,
    "one_hot_of_ten": lambda m: F.one_hot(m, 10) * 2,
    "tensor_split": lambda m: [t * 2 for t in torch.tensor_split(torch.arange(12.0), m.sort()[0][:2])],
    "tensor_split_in_three": lambda m: [t * 2 for t in torch.tensor_split(m, 3)],
    "pack_padded": lambda m: packed(m).data * 2,
    "pad_packed": lambda m: pad_packed_sequence(packed(m), batch_first=True)[0] * 2,
    "bincount": lambda m: torch.bincount(m) * 2,
    "unique": lambda m: [t * 2 for t in torch.unique(m, return_counts=True)],
    "repeat_interleave": lambda m: torch.repeat_interleave(torch.arange(6.0), m) * 2,
    "argwhere": lambda m: torch.argwhere(m > 1) * 2,
    "masked_select": lambda m: torch.masked_select(m, m > 1) * 2,
    "mask": lambda m: m[torch.isin(m, torch.tensor([1, 2]))] * 2,
    "lstsq": lambda m: torch.linalg.lstsq(torch.arange(12.0).view(6, 2) + m.view(6, 1), torch.ones(6, 1))[1],
}


def leaves(value):
    return [value] if isinstance(value, torch.Tensor) else [t for part in value for t in leaves(part)]


@pytest.mark.parametrize("name", PROGRAMS)
@torch.no_grad()
def test_sizes_that_are_data(name):
    torchbolt.reset()
    program = PROGRAMS[name]
    compiled = torchbolt.compile(lambda m: program(m))
    for i in (0, 1, 2, 3, 4, 2):
        m = torch.randint(0, 3 + i, (6,), generator=torch.Generator().manual_seed(i))
        for got, want in zip(leaves(compiled(m)), leaves(program(m)), strict=True):
            torch.testing.assert_close(got, want)
    # Sequences are packed inside a region, by lengths that mostly stay: others are run by eager.
    assert torchbolt.stats()["eager_fallbacks"] == 0 or name.startswith("pa")


@torch.no_grad()
def test_an_operator_that_nobody_knows_to_be_one():
    """Its first results are taken for all; a call that gives others is run by eager, and counted."""

    @torch.library.custom_op("torchbolt_tests::positive", mutates_args=())
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].clone()

    def fn(x):
        return positive(x) * 2 + 1

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for x in ([1.0, -1, 2], [1.0, -2, 3], [1.0, 2, 3], [-1.0, -2, -3], [4.0, -1, 1]):
        torch.testing.assert_close(compiled(torch.tensor(x)), fn(torch.tensor(x)))


def test_sizes_of_a_region_that_is_replayed_follow_its_numbers():
    def rows(a, c, n):
        row = c[int(c.argmax().item()) % c.shape[0]]
        row.view(-1)[1:3].fill_(-1.5)
        c.transpose(0, -1)[0].mul_(2)  # two inputs of the region are one memory: eager's operators run
        taken = a[torch.arange(n + 1) % a.shape[0]]
        n = taken.shape[0] - n
        return taken * n, n * 2

    compiled = torchbolt.compile(rows)
    for n in (2, 0, 2, 5, 0):
        a, c = torch.randn(1, 8), torch.randn(1, 8)
        want, got = rows(a, c.clone(), n), compiled(a, c.clone(), n)
        assert torch.equal(got[0], want[0]) and got[1] == want[1], n
