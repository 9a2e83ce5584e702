# tests/end_to_end/test_operators_over_sizes.py
"""Operators over sizes that differ between calls: one program for all of them, eager's results for each."""

from __future__ import annotations

import pytest
import torch
from over_sizes import LINEAR, SIZES, check, leaves, norm, pointwise, regions
from torch import nn
from torch.nn import functional as F

import torchbolt

torch.manual_seed(0)
TABLE = nn.Embedding(40, 16).eval()
LSTM = nn.LSTM(16, 8, batch_first=True).eval()
ATTENTION = nn.MultiheadAttention(16, 2, batch_first=True).eval()


def linear(x):
    return F.gelu(LINEAR(x))


def reduction(x):
    return x.sum(1), x.mean((0, 1)), x.std(1), x.amax(2)


def whole_reduction(x):
    return x.sum() / x.numel(), x.argmax(), x.max(1)


def heads(x):
    b, s, h = x.shape
    return x.view(b, s, 4, h // 4).transpose(1, 2).contiguous().view(b * 4, s, -1)


def flattened(x):
    return x.flatten(0, 1) * x.size(0), x.reshape(-1, 16) + 1, x.unflatten(2, (4, -1)).sum(-1)


def positions(x):
    return x + torch.arange(x.size(1))[None, :, None]


def spread(x):
    places = torch.linspace(-1, 1, x.size(1)), torch.linspace(0.1, x.size(0), steps=x.size(1) * 2, dtype=torch.float64)
    return x * places[0][:, None], places[1]


def causal_mask(x):
    s = x.size(1)
    mask = torch.tril(torch.ones(s, s, dtype=torch.bool))
    return (x @ x.transpose(1, 2)).masked_fill(~mask, -1e9).softmax(-1) @ x


def computed_slices(x):
    n = x.shape[1] // 2
    return x[:, :n] + x[:, n : n * 2], x[:, -1], x[:, 1:-1]


def concatenated(x):
    return torch.cat([x, x[:, :1]], 1) + torch.zeros(x.size(0), x.size(1) + 1, 16)


def attention(x):
    return F.scaled_dot_product_attention(x, x, x)


def expanded(x):
    return x.mean(1, keepdim=True).expand(-1, x.size(1), -1) + x.new_ones(x.shape[:2] + (1,))


def written(x):
    y = x.clone()
    y[:, 0] = 0
    y.add_(1)
    return y


def views_returned(x):
    y = x.relu()
    return y, y[:, 0], y.transpose(0, 1), x[:, 1:]


def pieces(x):
    a, b = x.chunk(2, -1)
    return a * b + x.unbind(-1)[0][..., None]


def repeated(x):
    return x.repeat(2, 1, 1) * torch.full((x.size(1), 1), x.size(0))


def outer(x):
    return x[:, :, None] * x[:, None]


def padded(x):
    return F.pad(x, (0, 0, 1, x.size(0)))


def numbers(x):
    return x - x.size(1) + x.size(0) * x / x.size(1) + 3 * (x.size(1) - 1) + max(x.shape) % 7 + torch.mul(x, x.size(0))


def compared_with_tensor(x):
    return (torch.arange(x.size(1)) < x.size(0))[None, :, None] * x


def not_ours(x):
    return x.cumsum(1) + x.sort(-1).values


def stacked(x):
    return torch.stack([x, x + 1], 1).mean(1)


def looked_up(x):
    return TABLE(torch.arange(x.size(1)) % 40) + x


def resampled(x):
    y = x[:, None]
    return (
        F.interpolate(y, scale_factor=2.0),
        F.interpolate(y, size=(7, 5), mode="bilinear"),
        F.interpolate(y, scale_factor=2, mode="bicubic"),
        F.interpolate(y[..., :3, :3], size=y.shape[2:], mode="bilinear", align_corners=True),
        F.grid_sample(y, torch.zeros(x.shape[0], 4, 4, 2) + 0.3, align_corners=False),
    )


def resampled_by_fractions(x):
    y = x[:, None]
    return (
        F.interpolate(x, scale_factor=1.5, mode="linear"),
        F.interpolate(y, scale_factor=(0.75, 2.5), mode="bilinear"),
        F.interpolate(y, scale_factor=1.25, mode="nearest-exact"),
        F.interpolate(y, scale_factor=0.625, mode="bicubic", antialias=True),
    )


def bags(x):
    b, s, _ = x.shape
    places = torch.arange(b * s) % 40
    starts = torch.arange(0, b * s, s)
    ends = torch.cat([starts, torch.tensor([b * s])])
    return (
        F.embedding_bag(places, TABLE.weight, starts),
        F.embedding_bag(places, TABLE.weight, ends, mode="mean", include_last_offset=True),
        F.embedding_bag(places.view(b, s), TABLE.weight, mode="sum", per_sample_weights=x[..., 0]),
        F.embedding_bag(places, TABLE.weight, starts, mode="max"),
        F.embedding_bag(places, TABLE.weight, starts, padding_idx=3),
    )


def squares_as_columns(x):
    images = x[:, None]
    return F.unfold(images, (2, 3), dilation=2, stride=(1, 2), padding=1), F.unfold(images[0] + 1, 3)


def aligned_and_framed(x):
    b, s, _ = x.shape
    sounds = torch.arange(x.shape[0] * 4 * s).float().sin().view(b, 4 * s)
    window = torch.hann_window(8)
    frames = torch.stft(sounds, 8, 4, window=window, return_complex=True)
    scores = x.transpose(0, 1).log_softmax(2)
    words = torch.ones(b, 3, dtype=torch.int64)
    losses = [
        F.ctc_loss(scores, words, torch.full((b,), s), torch.full((b,), 2), reduction=reduction)
        for reduction in ("mean", "none")
    ]
    return (
        *losses,
        torch.istft(frames, 8, 4, window=window),
        torch.istft(frames, 8, 4, window=window, length=20),
        torch.pdist(x[0]),
        torch.linalg.multi_dot([x[0], x[0].T, x[1]]),
    )


def pooled(x):
    y = x[:, None]
    return (
        F.max_pool2d(y, 2, 2, ceil_mode=True),
        F.avg_pool2d(y, 3, 2, 1, ceil_mode=True),
        F.adaptive_max_pool2d(y, 2),
        F.unfold(y, 2, padding=1),
        F.lp_pool2d(y, 2, 2),
    )


def steps(x):
    b, s, _ = x.shape
    return (
        torch.arange(0, b * s, s),
        torch.arange(b, b * s, s + 1),
        torch.arange(3, 4 * s, b, dtype=torch.float32) * x[0, 0, 0],
        torch.arange(s, 0, -2),
        torch.arange(s, s, b),
    )


def padded_otherwise(x):
    return tuple(F.pad(x, (1, 2, 1, 1), mode=mode) for mode in ("reflect", "replicate", "circular"))


def padded_to_a_multiple(x):
    b, s, _ = x.shape
    behind = F.pad(x, (0, 0, 0, -s % 4), mode="replicate"), F.pad(x, (0, 0, 0, s // 4), mode="reflect")
    return *behind, F.pad(x, (b % 3, 0), mode="circular")


def counted_by_sizes(x):
    best = x.flatten(1).topk(3)[1]
    return best % x.shape[1], best << x.shape[0], best >> x.shape[0], x.topk(min(5, x.shape[1]), 1)


def moved(x):
    return x.roll(1, 1), x.rot90(1, (1, 2)), x.tile(2), torch.pixel_shuffle(x.repeat(1, 4, 1)[:, :, None].mT, 1)


def contracted(x):
    return (
        torch.einsum("bik,bjk->bij", x, x),
        torch.tensordot(x, x, dims=([2], [2])),
        torch.cdist(x, x),
        torch.kron(x[0], x[1]),
    )


def measured(x):
    return (
        F.cosine_similarity(x, x * 2 + 1, dim=2),
        x.kthvalue(2, 1)[0],
        x.quantile(0.5, dim=1),
        torch.trapezoid(x, dim=1),
        torch.cov(x[0]),
    )


def transformed(x):
    return torch.fft.rfft(x, dim=1).abs(), torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1)


def parts_of_complex_numbers(x):
    turned = torch.fft.rfft(x, dim=1)
    twice = torch.fft.fft(x)
    return turned.real * 2, turned.imag.sum(1), twice.real, twice.imag + twice.real


def adjoint(x):
    return (x * 2).mH @ x, (x + 1).mH + 1, (x[0] * 2).H.sum(0)


def made_of_sizes(x):
    return torch.eye(x.shape[1]) @ x, torch.block_diag(x[0], x[1]), torch.outer(x[0, :, 0], x[1, :, 0])


def rounded_up(x):
    b, s, c = x.shape
    windows = F.pad(x, (0, 0, 0, -s % 4)).view(b, (s + 3) // 4, 4, c).softmax(2)
    whole = windows.flatten(1, 2)[:, :s] + x
    more = (s + 3) // 4 * 4 - s
    return windows, whole, F.pad(x, (0, 0, 0, (4 - s % 4) % 4)).reshape(-1, 4), F.pad(x, (0, 0, 0, more)).view(-1, 4, c)


def rounded_down(x):
    s = x.shape[1]
    return x[:, : s - s % 4].reshape(-1, 4, 16).sum(1), x[:, s % 2 :].reshape(-1, s // 2 * 2, 16)


def recurrent(x):
    return LSTM(x)[0], ATTENTION(x, x, x)[0]


ONE_PROGRAM = [
    resampled,
    resampled_by_fractions,
    steps,
    bags,
    squares_as_columns,
    aligned_and_framed,
    pooled,
    padded_otherwise,
    padded_to_a_multiple,
    counted_by_sizes,
    moved,
    contracted,
    measured,
    transformed,
    parts_of_complex_numbers,
    adjoint,
    made_of_sizes,
    recurrent,
    rounded_up,
    rounded_down,
    pointwise,
    linear,
    norm,
    reduction,
    whole_reduction,
    heads,
    flattened,
    positions,
    spread,
    causal_mask,
    computed_slices,
    concatenated,
    attention,
    expanded,
    written,
    views_returned,
    pieces,
    repeated,
    outer,
    padded,
    numbers,
    compared_with_tensor,
    not_ours,
    stacked,
    looked_up,
]


@pytest.fixture(autouse=True)
def fresh():
    torchbolt.reset()


@pytest.mark.parametrize("fn", ONE_PROGRAM, ids=lambda f: f.__name__)
def test_one_program_after_the_first_change(fn):
    compiled = torchbolt.compile(fn)
    seen = []
    for b, s in SIZES:
        check(compiled, fn, torch.randn(b, s, 16))
        seen.append(regions(compiled))
    assert seen == [1] + [2] * (len(SIZES) - 1)
    assert compiled._regions()[1]["sizes_given_up"] == []


@pytest.mark.parametrize("fn", ONE_PROGRAM, ids=lambda f: f.__name__)
def test_dynamic_from_the_start(fn):
    compiled = torchbolt.compile(fn, dynamic=True)
    for b, s in SIZES:
        check(compiled, fn, torch.randn(b, s, 16))
    assert regions(compiled) == 1


def test_attention_to_something_else():
    compiled = torchbolt.compile(ATTENTION)
    for b, s in SIZES:
        x, y = torch.randn(b, s, 16), torch.randn(b, 2 * s + 1, 16)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, y, y)[0], ATTENTION(x, y, y)[0])
    assert regions(compiled) == 2


def test_a_wrong_guess_is_not_made_again():
    def fn(x):
        n = x.shape[0]
        return torch.fft.fft(x, n=(n + 63) // 64 * 64).real * 2

    compiled = torchbolt.compile(fn)
    for n in (33, 35, 97, 97, 40, 97, 35):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), fn(x))
    [eager] = torchbolt.api.compiled_of(compiled)._eager_calls()
    assert eager["cause"] == "wrong_guess" and eager["count"] == 1


def windows(x):
    return x.unfold(1, 3, 2).sum(-1), x.chunk(2, 1)[0] + 1, x.unfold(0, 2, 1).mean(-1)


def a_row_by_size(x):
    return x[x.size(0) // 2] + 1, x[-1]


@pytest.mark.parametrize("fn", [windows, a_row_by_size])
def test_views_at_computed_places(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for b, s in SIZES:
        x = torch.randn(b, s, 16)
        for got, want in zip(compiled(x), fn(x), strict=True):
            torch.testing.assert_close(got, want)
    assert torchbolt.stats()["regions"] == 2


def test_views_by_aten_at_computed_places():
    def fn(x, n):
        row = x[n:].reshape(-1)
        return torch.meshgrid(row[:2], row[:3], indexing="ij")

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(6, 8)
    for n in (1, 2, 3, 2, 1):
        for got, want in zip(compiled(x, n), fn(x, n), strict=True):
            assert torch.equal(got, want) and got.storage_offset() == want.storage_offset()


def turned_by_complex_numbers(x):
    turn = torch.polar(torch.ones(x.shape[1], 8), torch.arange(x.shape[1]).float()[:, None].expand(-1, 8))
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:2], 8, 2)) * turn).flatten(2)


def grids(x):
    rows, columns = torch.arange(x.shape[0]), torch.arange(x.shape[1])
    a, b = torch.meshgrid(rows, columns, indexing="ij")
    c, d = torch.meshgrid(rows, columns, indexing="xy")
    return x * (a * b)[:, :, None], c + d, a, d, torch.cartesian_prod(rows, columns)


def diagonals(x):
    square = x @ x.transpose(1, 2)
    return square.diagonal(0, 1, 2) * 2, square.diagonal(2, 1, 2), x.diagonal(0, 0, 2), torch.trace(square[0])


def diagonals_of_an_input(x):
    return x.diagonal(0, 0, 1), x.diagonal(1, 0, 1), x[1:].diagonal(-1, 1, 2) * 3


def written_diagonals(x):
    y, z = x @ x.transpose(1, 2), x * 2
    y.diagonal(0, 1, 2).zero_()
    y.diagonal(-1, 2, 1).mul_(3)
    z.diagonal(1, 2, 0).copy_(torch.arange(z.shape[1] * z.diagonal(1, 2, 0).shape[1]).view(z.shape[1], -1))
    z.diagonal(-2, 0, 1).add_(1)
    x[0].diagonal().fill_(5)
    return y, z, x


@pytest.mark.parametrize("fn", [turned_by_complex_numbers, grids, diagonals, diagonals_of_an_input, written_diagonals])
def test_one_program_for_views_by_place(fn):
    compiled = torchbolt.compile(fn)
    for b, s in ((4, 8), (5, 9), (6, 12), (4, 7), (7, 11), (5, 8)):
        x = torch.randn(b, s, 16)
        want, got = leaves(fn(x.clone())), leaves(compiled(x))
        torch.testing.assert_close(got, want)
        assert [(t.stride(), t.storage_offset()) for t in got] == [(t.stride(), t.storage_offset()) for t in want]
    assert torchbolt.stats()["recompiles"] <= 2 and torchbolt.stats()["eager_fallbacks"] == 0


def test_pieces_of_a_size():
    def fn(x):
        return torch.cat([(i + 1) * piece for i, piece in enumerate(x.tensor_split(3))])

    compiled = torchbolt.compile(fn)
    for size in (12, 15, 9, 21, 30):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), fn(x))
    assert torchbolt.stats()["recompiles"] == 1
    for size in (10, 13, 11, 14, 22):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), fn(x))
    assert torchbolt.stats()["recompiles"] == 3, "a program for each remainder"


HALVES = {
    "rows": lambda x: x.view(2, -1) * 2,
    "columns": lambda x: x.view(-1, 2) * 2,
    "computed": lambda x: x.reshape(x.shape[0] // 2, 2) * 2,
    "unflatten": lambda x: x.unflatten(0, (2, -1)) + 1,
    "chunks": lambda x: x.chunk(2)[0] * x.chunk(2)[1],
    "halves of halves": lambda x: x.view(2, -1).view(2, 2, -1).sum(1),
    "among others": lambda x: torch.ones(3, 1, 1) * x.view(2, -1),
    "gated": lambda x: F.silu(x[: x.shape[0] // 2]) * x[x.shape[0] // 2 :],
}


@pytest.mark.parametrize("name", HALVES)
def test_halves_of_a_size(name):
    fn = HALVES[name]
    compiled = torchbolt.compile(fn)
    for size in (8, 12, 16, 20, 32, 12):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), fn(x))
    assert torchbolt.stats()["recompiles"] == 1
    for size in (9, 10, 13):  # another remainder: another program, or an error
        x = torch.randn(size)
        try:
            want = fn(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as ours:
                compiled(x)
            assert str(ours.value) == str(error)
        else:
            torch.testing.assert_close(compiled(x), want)


REFUSING = {
    "hsplit": lambda x: x.hsplit(2),
    "topk": lambda x: x.topk(7),
    "kthvalue": lambda x: x.kthvalue(7),
    "glu": F.glu,
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.view(1, -1, 1, 1), 2),
    "channel_shuffle": lambda x: torch.channel_shuffle(x.view(1, -1, 1, 1), 2),
    "reflected": lambda x: F.pad(x.view(1, -1), (6, 0), mode="reflect"),
    "slice": lambda x: x[:6].view(2, 3),
    "unfold": lambda x: x.unfold(0, 7, 1),
    "vsplit": lambda x: x.view(-1, 2).vsplit(2),
}


@pytest.mark.parametrize("name", REFUSING)
def test_what_nobody_uses_still_refuses_a_size(name):
    def fn(x):
        REFUSING[name](x)
        return x * 2

    compiled = torchbolt.compile(fn)
    for size in (8, 12, 16, 7, 9, 6, 5, 10, 3):
        x = torch.randn(size)
        try:
            want = fn(x)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            assert torch.equal(compiled(x), want)


VIEWS = {
    "row": lambda x: x[0],
    "last": lambda x: x[-1, 1:],
    "turned": lambda x: x.t(),
    "diagonal": lambda x: x.diagonal(),
    "real": torch.real,
    "as real": torch.view_as_real,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_complex_inputs(name):
    fn = VIEWS[name]
    compiled = torchbolt.compile(fn)
    for size in (8, 7, 6, 9):
        x = torch.randn(6, size, dtype=torch.complex64).t()
        want, got = fn(x), compiled(x)
        assert torch.equal(got, want) and got.stride() == want.stride()
        assert got.storage_offset() == want.storage_offset() and got._base is want._base


def test_differences_of_what_is_too_short():
    compiled = torchbolt.compile(lambda x: x.diff(n=6) + 1)
    for size in (8, 12, 16, 5, 3):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), x.diff(n=6) + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.complex64])
def test_numbers_that_are_spread(dtype):
    """linspace takes no size that differs: what it gives is written as operators, where its numbers are of a common kind."""

    def fn(n, first, last):
        return torch.linspace(first, last, n, dtype=dtype), torch.linspace(last, first, n + 1, dtype=dtype)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    usual = dtype in (torch.float32, torch.float64)
    for n, last in (
        ((5, 1.5), (7, 2.5), (8, -3.25), (30, 1e3), (101, 0.1), (9, 0.5), (2, 0.25)) if usual else ((5, 2.5), (7, 3.5))
    ):
        for got, want in zip(compiled(n, 0.3, last), fn(n, 0.3, last), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
            assert got[0] == want[0] and got[-1] == want[-1]
    assert torchbolt.stats()["recordings"] == 2 and torchbolt.stats()["eager_fallbacks"] == 0
    for n in (1, 0):
        torch.testing.assert_close(compiled(n, 0.3, 0.5), fn(n, 0.3, 0.5))
