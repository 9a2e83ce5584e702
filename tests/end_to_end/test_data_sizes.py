# tests/end_to_end/test_data_sizes.py
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
    "bincount_below": lambda m: torch.bincount(m, minlength=8) * 2,
    "bincount_beyond": lambda m: torch.bincount(m + 3, minlength=2) * 2,
    "bincount_of_bytes": lambda m: torch.bincount(m.to(torch.uint8), minlength=300) * 2,
    "bincount_with_weights": lambda m: torch.bincount(m, torch.arange(6.0), minlength=8) * 2,
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
    assert torchbolt.stats()["eager_fallbacks"] == 0


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


W, ROWS = torch.randn(6, 8), torch.randn(5, 8)


def mixture(x):
    p, choice = (x @ W[:3].T).softmax(-1).topk(2, -1)
    out = torch.zeros_like(x)
    for expert in range(3):
        row, k = torch.where(choice == expert)
        out.index_add_(0, row, torch.relu(x[row] * (expert + 1)) * p[row, k, None])
    return out


def selected(x):
    return x[x[:, 0] > 0]


def two_halves(x):
    left = x[:, 0] > 0
    return x[left] + x[left] * 2, x[~left].sum(0)


def written(x):
    x[x[:, 0] > 0] += 1
    copy = x.clone()
    places = (x[:, 1] > 0).nonzero()[:, 0]
    copy[places] = copy[places] * 2 + 1
    return x * 2, copy


def of_a_column(x):
    return sum(x[:, i][x[:, i] > -9].sum() for i in range(x.shape[1]))


def unique(x):
    values, where, count = torch.unique((x * 2).long(), return_inverse=True, return_counts=True)
    return values * 2, where + 1, count * values, values[where]


def asked_for(x):
    y = selected(x)
    n = y.size(0)
    return y.new_zeros(n, 2) + n, n * 2 + 1, n / 4, y.numel(), y.shape, f"{n} rows", n + x.shape[0]


def attention(x):
    q = selected(x)[None, None]
    return F.scaled_dot_product_attention(q, q, q)


def reshaped(x):
    y = selected(x)
    return y.view(-1, 2, 4).transpose(1, 2).reshape(y.shape[0] * 2, 4), y.t() @ y, y.t() + 1


def outer(x):
    a = x[:, 0][x[:, 0] > 0]
    return a[:, None] * a[None, :], (a[:, None] > a).float().sum(1)


def joined(x):
    return torch.cat([selected(x), x[:3]]) * 2, torch.cat([selected(x), x[x[:, 1] > 0]]).sum(1)


# fmt: off
IN_ONE_REGION = {
    "mixture": mixture, "two halves": two_halves, "written": written, "of a column": of_a_column, "unique": unique,
    "asked for": asked_for, "attention": attention, "reshaped": reshaped, "outer": outer, "joined": joined,
    "counted": lambda x: (torch.bincount(x[x > 0].long(), minlength=9) + 1, torch.bincount((x[:, 0].abs() * 9).long() + 2)),
    "reduced": lambda x: (x[x > 0].mean(), x[x > 0].var(), selected(x).sum(0)),
    "largest": lambda x: x[x[:, 0] > -9].amax(0),
    "softmax": lambda x: (selected(x).softmax(0), selected(x).softmax(1)),
    "linear": lambda x: F.linear(selected(x), W).relu() + 1,
    "norm": lambda x: F.layer_norm(selected(x), (8,)),
    "table": lambda x: F.embedding((x[:, 0] > 0).nonzero()[:, 0] % 5, ROWS),
    "masked_select": lambda x: torch.masked_select(x, x[:, :1] > 0) * 2,
    "argwhere": lambda x: (torch.argwhere(x > 0.5) + 1, torch.where(x > 0.3)),
    "ends": lambda x: (x[x[:, 0] > -9][0] * 2, x[x[:, 0] > -9][-1]),
    "sliced": lambda x: selected(x)[1:] + 1,
    "sorted": lambda x: (selected(x).sort(0)[0] + 1, x[x > 0].cumsum(0)),
    "flipped": lambda x: selected(x).flip(0) * 2,
    "padded": lambda x: F.pad(selected(x), (1, 1, 0, 2)),
    "repeated": lambda x: selected(x).mean(0, keepdim=True).expand(selected(x).shape[0], -1) + selected(x).repeat(1, 1),
    "zeros of that size": lambda x: selected(x) + torch.zeros(selected(x).shape[0], 8),
    "written in place": lambda x: (x > 0.1).nonzero().add_(1).masked_fill_(torch.tensor([True, False]), 7),
    "loss": lambda x: F.cross_entropy(selected(x), torch.arange(x.shape[0])[x[:, 0] > 0] % 8),
}
# fmt: on


def rows_of(i):
    """Twenty rows, or 24; of the fourth none begins with a number above 0, of the fifth one does."""
    x = torch.randn(24 if i > 6 else 20, 8, generator=torch.Generator().manual_seed(i))
    if i in (4, 5):
        x[:, 0] = -1
        x[3, 0] = 1 if i == 5 else -1
    return x


def parts(value):
    if isinstance(value, torch.Tensor) or not isinstance(value, tuple | list):
        return [value]
    return [t for part in value for t in parts(part)]


@pytest.mark.parametrize("name", IN_ONE_REGION)
@torch.no_grad()
def test_a_region_goes_on_behind_them(name):
    program = IN_ONE_REGION[name]
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: program(x), fullgraph=True)
    for i in range(9):
        given, eagers_given = rows_of(i), rows_of(i)
        want, got = parts(program(eagers_given)), parts(compiled(given))
        for mine, eagers in zip(got, want, strict=True):
            if isinstance(eagers, torch.Tensor):
                torch.testing.assert_close(mine, eagers, atol=1e-5, rtol=1e-4, equal_nan=True)
            else:
                assert mine == eagers
        strides = lambda values: [t.stride() for t in values if isinstance(t, torch.Tensor)]
        assert strides(got) == strides(want)
        assert torch.equal(given, eagers_given)
    stats = torchbolt.stats()
    # For twenty rows, and for any number of them. Where the result of nothing is another, eager makes it.
    assert (stats["regions"], stats["region_ends"]) == (2, 0) and stats["eager_fallbacks"] <= 2, stats


@torch.no_grad()
def test_what_depends_on_how_many_there_are_ends_the_region():
    def program(x):
        y = selected(x) * 2
        return y + 1 if y.shape[0] > 8 else y - 1

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for i in range(7):
        torch.testing.assert_close(compiled(rows_of(i)), program(rows_of(i)))
    assert list(torchbolt.stats()["break_reasons"]) == ["the value of a tensor decides what is computed"]
    assert torchbolt.stats()["eager_fallbacks"] == 0


@torch.no_grad()
def test_what_is_not_compiled_for_all_of_them_ends_the_region():
    """An even number of them must be known to be even: the recording is made once more, with an end."""

    def program(x):
        column = torch.cat([x, x])[:, 0]
        return column[column > 0].view(2, -1) * 2

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for i in range(5):
        torch.testing.assert_close(compiled(rows_of(i)), program(rows_of(i)))
    assert torchbolt.stats()["region_ends"] > 0 and torchbolt.stats()["eager_fallbacks"] == 0
    with pytest.raises(torchbolt.exc.GraphBreak, match="as many elements as its data say"):
        torchbolt.compile(lambda x: program(x), fullgraph=True)(rows_of(0))


def test_gradients_are_followed_as_in_eager():
    def program(x):
        return (selected(x) * 2).sum() + (x.detach()[x[:, 1] > 0] ** 2).sum()

    compiled = torchbolt.compile(lambda x: program(x))
    for i in range(3):
        mine, eagers = rows_of(i).requires_grad_(), rows_of(i).requires_grad_()
        compiled(mine).backward()
        program(eagers).backward()
        assert torch.equal(mine.grad, eagers.grad)


@torch.no_grad()
def test_an_index_out_of_range_behind_them_is_eagers_error():
    def program(x, table):
        return table[(x[:, 0] > 0).nonzero()[:, 0]] * 2

    compiled = torchbolt.compile(program)
    for i in (0, 1, 2):
        assert torch.equal(compiled(rows_of(i), torch.arange(20)), program(rows_of(i), torch.arange(20)))
    with pytest.raises(IndexError):
        compiled(rows_of(3), torch.arange(2))


def test_layers_one_behind_another():
    layers = [torch.randn(8, 8) for _ in range(6)]

    def program(x):
        for w in layers:
            x = x.index_add(0, torch.where(x[:, 0] > 0)[0], torch.tanh(selected(x) @ w) * 0.1)
        return x

    torchbolt.reset()
    with torch.no_grad():
        compiled = torchbolt.compile(program)
        for i in range(3):
            torch.testing.assert_close(compiled(rows_of(i)), program(rows_of(i)))
    assert (torchbolt.stats()["regions"], torchbolt.stats()["region_ends"]) == (1, 0)


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


def test_what_is_given_away_was_made_in_the_state_before():
    def fn(x):
        y = x[(x > 0).any(-1)]
        with torch.no_grad():
            z = y * 3
            z += 1
        return y, z

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for i in range(4):
        x = (torch.randn(6, 2, generator=torch.Generator().manual_seed(i)) - 0.5).requires_grad_()
        for got, want in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(got, want)
            assert got.requires_grad == want.requires_grad
