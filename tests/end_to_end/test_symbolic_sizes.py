"""Sizes that differ between calls: one program for all of them, eager's results for each.

A row is a function and the calls it is given; `compiled` is how many recordings these calls make. Where it is not
2 (the first call, static, and the one that showed what changes) the row says why.
"""

from __future__ import annotations

import functools
import random
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchbolt

torch.manual_seed(0)
LINEAR = nn.Linear(16, 24).eval()
NORM = nn.LayerNorm(24).eval()
TABLE = nn.Embedding(40, 16).eval()
LSTM = nn.LSTM(16, 8, batch_first=True).eval()
ATTENTION = nn.MultiheadAttention(16, 2, batch_first=True).eval()

# Batch and length differ at the second call, so that both are symbols from then on.
SIZES = [(2, 8), (3, 9), (5, 12), (4, 6), (7, 10), (9, 9), (2, 8), (6, 7)]


def pointwise(x):
    return torch.relu(x) * 2 + 1


def linear(x):
    return F.gelu(LINEAR(x))


def norm(x):
    return NORM(LINEAR(x)).softmax(-1)


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
    assert "guessed" in eager["why"] and eager["count"] == 1


def test_never():
    compiled = torchbolt.compile(pointwise, dynamic=False)
    for n, (b, s) in enumerate(SIZES[:6]):
        check(compiled, pointwise, torch.randn(b, s, 16))
        assert regions(compiled) == n + 1


def test_only_what_changed_becomes_a_symbol():
    compiled = torchbolt.compile(pointwise)
    for b in (2, 3, 4):
        check(compiled, pointwise, torch.randn(b, 8, 16))
    assert regions(compiled) == 2
    assert "f32[s0, 8, 16]" in compiled._regions()[1]["graph"]
    check(compiled, pointwise, torch.randn(4, 9, 16))
    assert regions(compiled) == 3
    check(compiled, pointwise, torch.randn(5, 11, 16))
    assert regions(compiled) == 3


@pytest.mark.parametrize("sizes", [(0, 8), (1, 8), (3, 0), (3, 1), (1, 1), (0, 0)])
def test_none_and_one_are_sizes_of_their_own(sizes):
    compiled = torchbolt.compile(norm)
    for b, s in [(2, 8), (3, 9), sizes, (5, 7), sizes]:
        check(compiled, norm, torch.randn(b, s, 16))
    assert regions(compiled) == 3


def test_equal_numbers_are_not_equal_sizes():
    def outer_sum(x, y):
        return x[:, None] + y[None, :]

    compiled = torchbolt.compile(outer_sum, dynamic=True)
    for n, m in [(4, 4), (4, 7), (7, 4), (3, 3)]:
        x, y = torch.randn(n), torch.randn(m)
        torch.testing.assert_close(compiled(x, y), outer_sum(x, y))
    assert regions(compiled) == 1


def test_sizes_that_must_agree_are_guarded():
    compiled = torchbolt.compile(lambda x, y: x + y, dynamic=True)
    for n in (4, 7, 9):
        compiled(torch.randn(n), torch.randn(n))
    assert regions(compiled) == 1
    assert "s0 == s1" in compiled._regions()[0]["guards"] or "s1 == s0" in compiled._regions()[0]["guards"]
    x, y = torch.randn(5), torch.randn(1)
    torch.testing.assert_close(compiled(x, y), x + y)
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.randn(5), torch.randn(6))


def test_sizes_compared_with_a_list_from_outside():
    def fn(x, w):
        return x + 1 if list(x.shape) == w else x - 1

    compiled = torchbolt.compile(fn)
    for n, w in (
        (3, [3, 2]),
        (5, [5, 2]),
        (6, [6, 2]),
        (6, [7, 2]),
        (6, [6, 3]),
        (7, [7, 2]),
        (7, [6, 2]),
        (8, [8, 2, 1]),
    ):
        x = torch.randn(n, 2)
        assert torch.equal(compiled(x, w), fn(x, w)), (n, w)


def test_a_branch_on_a_size_is_a_guard_with_its_line():
    def branch(x):
        return x * 2 if x.shape[0] > 6 else x + 1

    compiled = torchbolt.compile(branch, dynamic=True)
    for n, expected in [(4, 1), (5, 1), (6, 1), (7, 2), (9, 2), (3, 2)]:
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), branch(x))
        assert regions(compiled) == expected
    guards = [r["guards"] for r in compiled._regions()]
    assert "s0 <= 6" in guards[0] and "6 < s0" in guards[1]


def test_slices_that_reach_the_end_leave_no_operator():
    def first_eight(x):
        return x[:8] + 0

    compiled = torchbolt.compile(first_eight, dynamic=True)
    for n in (5, 6, 8, 9, 12, 7):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), first_eight(x))
    assert regions(compiled) == 2


def test_a_loop_over_a_size_takes_it_for_a_number():
    def loop(x):
        out = 0
        for i in range(x.shape[0]):
            out = out + x[i]
        return out

    compiled = torchbolt.compile(loop, dynamic=True)
    for n in (3, 4, 5, 3):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), loop(x))
    assert regions(compiled) == 3
    assert "in loop" in compiled._regions()[0]["sizes_given_up"][0]
    assert "Size compiled in: " in str(torchbolt.explain(loop, dynamic=True)(x))


@pytest.mark.parametrize("index", ["x[10]", "x[:, 10]", "x[None, 10, 11]", "x[10] = 1"])
def test_an_error_tells_the_sizes_of_the_call(index):
    space = {}
    exec(f"def fn(x):\n try:\n  {index}\n except IndexError as error:\n  return str(error)", space)
    compiled = torchbolt.compile(space["fn"])
    for n in (4, 6, 5, 7, 4):
        assert compiled(torch.ones(n, n + 1)) == space["fn"](torch.ones(n, n + 1))


def test_the_recompile_limit_counts_as_before():
    def loop(x):
        return sum(x[i] for i in range(x.shape[0]))

    compiled = torchbolt.compile(loop, recompile_limit=3)
    for n in (2, 3, 4):
        compiled(torch.randn(n, 4))
    with pytest.warns(RuntimeWarning, match="recompile_limit"):
        compiled(torch.randn(5, 4))
    assert regions(compiled) == 3


def test_a_tensor_that_is_only_handed_on_may_have_any_size():
    def fn(x, y):
        return [y * 2, x]

    def looks(x, y):
        return [y * 2, x, x.shape[1]]

    def joins(x, y):
        z = x[x[:, 0] > 0]
        return z * 2, y[y > 0].sort()[0]

    for program, compiled_for_sizes in ((fn, 2), (looks, 2), (joins, 2)):
        torchbolt.reset()
        compiled = torchbolt.compile(program)
        for i in range(6):
            x, y = torch.randn(20 + i, 3 + i % 3), torch.randn(30 + 2 * i)
            for got, want in zip(compiled(x, y), program(x, y), strict=True):
                assert got == want if isinstance(want, int) else torch.equal(got, want)
        assert regions(compiled) == compiled_for_sizes, program


def test_transposed_inputs_keep_their_order():
    compiled = torchbolt.compile(pointwise, dynamic=True)
    for n, m in [(3, 5), (4, 6), (7, 2)]:
        x = torch.randn(n, m).t()
        got = compiled(x)
        torch.testing.assert_close(got, pointwise(x))
        assert got.stride() == pointwise(x).stride()
    assert regions(compiled) == 1
    compiled(torch.randn(3, 5))
    assert regions(compiled) == 2


def test_inputs_written_to():
    def step(x, y):
        x.mul_(2)
        x[: y.size(0)] += y
        return x.sum()

    compiled = torchbolt.compile(step, dynamic=True)
    for n, m in [(6, 3), (8, 5), (9, 2)]:
        x, y = torch.randn(n, 4), torch.randn(m, 4)
        mine = x.clone()
        torch.testing.assert_close(compiled(mine, y), step(x, y))
        torch.testing.assert_close(mine, x)


def test_sizes_that_are_returned_or_kept_are_made():
    class Seen:
        pass

    def fn(x, seen):
        b, s = x.shape[:2]
        seen.sizes = [b, s * 2]
        return x * 2, s + 1, x.shape, {"n": (b, 3)}

    compiled = torchbolt.compile(fn)
    for b, s in SIZES:
        x, want, got = torch.randn(b, s, 16), Seen(), Seen()
        torch.testing.assert_close(compiled(x, got), fn(x, want))
        assert got.sizes == want.sizes and type(compiled(x, got)[2]) is torch.Size
    assert regions(compiled) == 2


def test_sizes_live_on_behind_the_end_of_a_region(capsys):
    def fn(x):
        n = x.shape[0]
        y = x * n
        print("between")
        return y + n, torch.zeros(n)

    compiled = torchbolt.compile(fn, dynamic=True)
    for n in (3, 4, 6, 9):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))


def test_mark_dynamic():
    compiled = torchbolt.compile(pointwise)
    for n in (4, 5, 9):
        x = torch.randn(n, 8)
        torchbolt.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), pointwise(x))
    assert regions(compiled) == 1
    assert "f32[s0, 8]" in compiled._regions()[0]["graph"]


def test_mark_dynamic_has_limits():
    compiled = torchbolt.compile(pointwise)
    for n, expected in [(4, 1), (8, 1), (2, 2), (3, 2), (30, 3)]:
        x = torch.randn(n, 8)
        torchbolt.mark_dynamic(x, 0, min=4, max=8)
        torch.testing.assert_close(compiled(x), pointwise(x))
        assert regions(compiled) >= expected - 1


def test_a_mark_that_cannot_be_kept_names_the_line():
    def loop(x):
        return sum(x[i] for i in range(x.shape[0]))

    x = torch.randn(4, 8)
    torchbolt.mark_dynamic(x, 0)
    with pytest.raises(torchbolt.exc.ConstraintViolationError, match="size 0 of x .* in loop"):
        torchbolt.compile(loop)(x)
    y = torch.randn(4, 8)
    torchbolt.maybe_mark_dynamic(y, 0)
    torch.testing.assert_close(torchbolt.compile(loop)(y), loop(y))


@functools.lru_cache
def remembered(n):
    return n * 2


READERS = {
    "dict": lambda x: x * {4: 1.0}[x.shape[0]],
    "long": lambda x: x * (x.shape[0] in tuple(range(100))),
    "list": lambda x: x * [1.0, 2.0, 3.0, 4.0, 5.0][x.shape[0]],
    "element": lambda x: (x + 1, {x.shape[0]}),
    "bytes": lambda x: (x + 1, b"x" * x.shape[0]),
    "text": lambda x: (x + 1, len("x%d" % x.shape[0])),
    "cache": lambda x: x * remembered(x.shape[0]),
    "torch": lambda x: torch.broadcast_shapes(x.shape, (4, 4)) and x + 1,
}


@pytest.mark.parametrize("what", READERS)
def test_a_mark_that_cannot_be_kept_names_what_read_the_size(what):
    fn = READERS[what]
    x = torch.randn(4, 4)
    torchbolt.mark_dynamic(x, 0)
    here = f"forced it: {__file__}:{fn.__code__.co_firstlineno} in <lambda>"
    with pytest.raises(torchbolt.exc.ConstraintViolationError, match=re.escape(here)):
        torchbolt.compile(fn)(x)


def test_mark_static():
    compiled = torchbolt.compile(pointwise, dynamic=True)
    for n in (4, 5, 6):
        x = torch.randn(n, 8)
        torchbolt.mark_static(x, 0)
        torch.testing.assert_close(compiled(x), pointwise(x))
    assert regions(compiled) == 3


def test_torchs_own_marks():
    compiled = torchbolt.compile(pointwise)
    for n in (4, 5, 9):
        x = torch.randn(n, 8)
        x._dynamo_dynamic_indices = {0}
        torch.testing.assert_close(compiled(x), pointwise(x))
    assert regions(compiled) == 1


def test_random_programs_over_random_sizes():
    """Chains of random steps; each is checked at sizes it was not compiled for."""
    steps = [
        lambda x, r: x * x.size(r),
        lambda x, r: x + torch.arange(x.size(-1)),
        lambda x, r: x.transpose(0, 1),
        lambda x, r: x.flatten(0, 1).unflatten(0, (x.size(0), -1)),
        lambda x, r: x - x.mean(r, keepdim=True),
        lambda x, r: torch.cat([x, x[:1]], 0),
        lambda x, r: x[:, : x.size(1) - 1] if x.size(1) > 4 else x,
        lambda x, r: x.softmax(-1),
        lambda x, r: x[:, :5].sum(1, keepdim=True) + x,
        lambda x, r: x.reshape(x.size(1), -1, x.size(2)),
        lambda x, r: torch.where(x > 0, x, torch.zeros(x.shape[1:])),
        lambda x, r: x.cumsum(0),
        lambda x, r: F.pad(x, (0, 1, 1, 0)),
        lambda x, r: x @ torch.ones(x.size(2), x.size(2)),
        lambda x, r: x.contiguous().view(-1, x.size(2)).view(x.shape),
    ]
    for seed in range(40):
        rng = random.Random(seed)
        chosen = [(rng.choice(steps), rng.randrange(3)) for _ in range(rng.randrange(2, 6))]

        def program(x, chosen=chosen):
            for step, dim in chosen:
                x = step(x, dim)
            return x

        torchbolt.reset()
        compiled = torchbolt.compile(program, dynamic=rng.choice([None, True]), recompile_limit=50)
        for _ in range(7):
            x = torch.randn(rng.randrange(1, 8), rng.randrange(1, 9), rng.choice([6, 6, 7]))
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), program(x), atol=1e-5, rtol=1e-4, msg=lambda m: f"{seed}: {m}")


def test_sizes_that_come_often_get_a_program_of_their_own():
    def fn(x):
        return NORM(LINEAR(x)).softmax(-1), x.shape[1]

    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=True, fullgraph=True)
    often, seldom = torch.randn(3, 7, 16), torch.randn(4, 5, 16)
    with torch.no_grad():
        for n in range(300):
            x = seldom if n % 10 == 0 else often
            (got, length), (want, expected) = compiled(x), fn(x)
            torch.testing.assert_close(got, want)
            assert length == expected
            if n == 200:
                torchbolt.wait()
    stats = torchbolt.stats()
    assert stats["regions"] == 1 and stats["specialized"] == 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_under_gradients(dynamic):
    def fn(x):
        y = F.gelu(LINEAR(x))
        return (y.reshape(x.size(0), -1) * x.size(1)).sum(1), y[:, : x.size(1) // 2]

    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=dynamic, fullgraph=True)
    for b, s in SIZES:
        x = torch.randn(b, s, 16)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        for t, f in ((a, compiled), (b, fn)):
            one, two = f(t)
            (one.sum() + two.pow(2).sum()).backward()
        torch.testing.assert_close(a.grad, b.grad)
    assert torchbolt.stats()["regions"] == (1 if dynamic else 2)


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


def test_sizes_of_a_tensor_that_nothing_uses():
    """What lies about where a region begins has another size each time; the region computes with other sizes."""

    def program(c):
        picked = c[c > 0.2]  # noqa: F841
        c[1:].mul_(0.5)
        return torch.maximum(c, c), torch.eye(c.shape[-1])

    torchbolt.reset()
    compiled = torchbolt.compile(program)
    for seed in range(4):
        torch.manual_seed(seed)
        mine = torch.randn(4, 16)
        theirs = mine.clone()
        for got, want in zip(compiled(mine), program(theirs), strict=True):
            torch.testing.assert_close(got, want)
        assert torch.equal(mine, theirs)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_sizes_that_grow_together():
    """Keys and values of a cache: s0 + 1 and s1 + 1 are equal where s0 and s1 are."""

    def decode(x, keys, values):
        keys, values = torch.cat([keys, x], -2), torch.cat([values, x], -2)
        return F.scaled_dot_product_attention(x, keys, values), keys, values

    compiled = torchbolt.compile(decode)
    with torch.no_grad():
        keys, values = torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
        for _ in range(8):
            x = torch.randn(2, 2, 1, 8)
            want, got = decode(x, keys, values), compiled(x, keys, values)
            torch.testing.assert_close(got, want)
            _, keys, values = got
    assert torchbolt.stats()["recompiles"] == 1


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
