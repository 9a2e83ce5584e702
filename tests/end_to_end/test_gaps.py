# tests/end_to_end/test_gaps.py
"""Inputs with gaps and expanded ones (slices, crops, chunks) whose sizes differ between calls: eager's values, strides and
aliasing from one program for all sizes."""

from __future__ import annotations

import pytest
import torch
from over_sizes import leaves, regions
from torch import nn
from torch.nn import functional as F

import torchbolt


@pytest.fixture(autouse=True)
def fresh():
    torchbolt.reset()


def rows(x):
    return x.sum(-1), x * 2, x.relu().flatten(), x.contiguous().view(-1) + 1


def reshaped(x):
    return x.reshape(-1), x.flatten(0, 1), x.reshape(*x.shape[:-1], -1, 1) * 2


def views_of_gaps(x):
    return x[1:], x[..., 1:], x.mT, x[0], x[:, -1], x.transpose(0, 1)[None] + 1, x[..., ::2]


def laid_out_alike(x):
    return torch.empty_like(x).zero_(), x.clone(), x.mT + x.mT, x.to(torch.float64), torch.zeros_like(x.mT)


def contracted_gaps(x):
    return x @ x.mT, F.linear(x, x.reshape(-1, x.shape[-1])[:3]), x.softmax(-1), x.cumsum(-1)


def stepped_through(x):
    return x.diagonal(dim1=-2, dim2=-1), x.diagonal(dim1=-2, dim2=-1).reshape(-1), x.unfold(-1, 2, 1) * 2


def strides_asked(x):
    return x * x.stride(0), x[0].stride(-1), x.is_contiguous()


WITH_GAPS = [rows, reshaped, views_of_gaps, laid_out_alike, contracted_gaps, stepped_through]

GAPS = {
    "all but the last": lambda n: torch.randn(2, n, 8)[:, :-1],
    "all but the first": lambda n: torch.randn(2, 4, n)[..., 1:],
    "a part of rows": lambda n: torch.randn(2, n, n + 3)[..., :n],
    "the last of each": lambda n: torch.randn(3, n, 4, 8)[:, -1],
    "an image crop": lambda n: torch.randn(2, 3, 2 * n, n + 2)[:, :, :n, 1 : n + 1],
    "a crop with channels last": lambda n: torch.randn(2, 3, 30, n + 3).to(memory_format=torch.channels_last)[..., :n],
    "one channel of many": lambda n: torch.randn(2, 5, n, n)[:, 1:2],
    "a third of the columns": lambda n: torch.randn(2, n, 24).chunk(3, -1)[1],
    "every other one": lambda n: torch.randn(3, n, 2 * n)[:, :, ::2],
    "repeated": lambda n: torch.randn(4, 1, n).expand(4, 3, n),
    "repeated in front": lambda n: torch.randn(n, n).expand(3, n, n),
    "a transposed part": lambda n: torch.randn(n, 3, n + 2)[..., 2:].transpose(0, 2),
    "the first of two": lambda n: torch.randn(2, n, 8)[::2],
    "the last of one": lambda n: torch.randn(1, 3, n, 8)[:, :, -1:],
}


@pytest.mark.parametrize("make", GAPS.values(), ids=GAPS)
@pytest.mark.parametrize("fn", WITH_GAPS, ids=lambda f: f.__name__)
def test_inputs_with_gaps(fn, make):
    compiled = torchbolt.compile(fn)
    for n in (5, 7, 6, 11, 20, 9, 12):
        x = make(n)
        check_places(compiled, fn, x)
    assert torchbolt.stats()["eager_fallbacks"] == 0
    # Which side of a matrix its diagonal is as long as is a guard.
    assert regions(compiled) == 2 or (fn is stepped_through and regions(compiled) <= 4)


@pytest.mark.parametrize("make", GAPS.values(), ids=GAPS)
def test_strides_that_are_asked_for(make):
    compiled = torchbolt.compile(strides_asked, dynamic=True)
    for n in (5, 7, 6, 11):
        check_places(compiled, strides_asked, make(n))


def check_places(compiled, fn, x):
    """Results are what eager's are, and where they are: views of the input or memory of their own."""
    with torch.no_grad():
        want, got = fn(x), compiled(x)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    at = x.untyped_storage().data_ptr()
    for a, b in zip(leaves(got), leaves(want), strict=True):
        assert a.stride() == b.stride() and (a.untyped_storage().data_ptr() == at) == (
            b.untyped_storage().data_ptr() == at
        )
        assert b.untyped_storage().data_ptr() != at or a.data_ptr() == b.data_ptr()


def columns_of_one(n):
    base = torch.randn(n, 5)
    return base[:, :3], base[:, 1:4]


def parts_of_one(n):
    base = torch.randn(n)
    return base[:-2], base[2:]


@pytest.mark.parametrize("make", [columns_of_one, parts_of_one])
@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: (a[1:], b[:-1], a + b, b),
        lambda a, b: (a.T, b.T[None], a[2:] * 2),
        lambda a, b: (b[1:], b[1:][1:], a[::2], a.unfold(0, 2, 1)),
    ],
)
def test_views_of_inputs_that_overlap(fn, make):
    """Each is a view of the input that it was made of: where the two begin may differ between calls."""
    compiled = torchbolt.compile(fn)
    for n in (7, 9, 8, 12, 10):
        inputs = make(n)
        for got, want in zip(compiled(*inputs), fn(*inputs), strict=True):
            assert torch.equal(got, want) and got.stride() == want.stride()
            shares = want.untyped_storage().data_ptr() == inputs[0].untyped_storage().data_ptr()
            assert not shares or got.data_ptr() == want.data_ptr()
    assert regions(compiled) == 2


def test_a_gap_is_not_always_there():
    """What is contiguous in one call and not in the next has programs for both."""

    def fn(x):
        return x.reshape(-1), x.contiguous()

    compiled = torchbolt.compile(fn, dynamic=True)
    base = torch.randn(4, 12)
    for n in (8, 12, 9, 12, 10):
        check_places(compiled, fn, base[:, :n])
    assert regions(compiled) == 2


def test_parts_of_an_input_with_gaps_may_be_one_run():
    """Every other row of 5, and a gap of one row before the next 5: the same step all along, which 6 have not."""

    def fn(x):
        return x[:, ::2].reshape(-1, 8)

    compiled = torchbolt.compile(fn, dynamic=True)
    for n in (5, 6, 7, 8, 11, 12):
        x = torch.randn(3, 8 * n + 8)[:, : 8 * n].unflatten(1, (n, 8))
        check_places(compiled, fn, x)


def of_one(x):
    return x[None], x[0], x.mT, x.clone(), x.mT.clone(), torch.empty_like(x).zero_(), x * 2, x[..., :1], x.amax(0)


@pytest.mark.parametrize(
    "make", [lambda n: torch.randn(2, n)[::2], lambda n: torch.randn(1, n)[:, -1:], lambda n: torch.randn(n, 3).T[:1]]
)
def test_gaps_of_dimensions_of_size_1(make):
    """They mean nothing, but views and copies show them, and the last token of one text has one of another length in
    each call."""
    compiled = torchbolt.compile(of_one)
    for n in (5, 7, 6, 11, 20):
        check_places(compiled, of_one, make(n))
    assert regions(compiled) == 2


def test_a_dimension_of_size_1_lies_elsewhere():
    """Within the other, outside of it, or with a gap: a program for each."""
    makes = [lambda n: torch.randn(1, n), lambda n: torch.randn(n, 1).T, lambda n: torch.randn(2, n)[::2]]
    compiled = torchbolt.compile(of_one, dynamic=True)
    for n in (5, 7, 6, 11):
        for make in makes:
            check_places(compiled, of_one, make(n))
    assert regions(compiled) == 3


def test_writing_to_inputs_with_gaps():
    def fn(x, y):
        x.add_(y)
        x[..., 0] = 7
        return x[1:], x.sum()

    compiled = torchbolt.compile(fn)
    for n in (5, 7, 6, 11):
        mine, theirs = torch.zeros(3, n + 2), torch.zeros(3, n + 2)
        y = torch.randn(3, 2 * n)[:, ::2]
        torch.testing.assert_close(compiled(mine[:, 1:-1], y), fn(theirs[:, 1:-1], y))
        assert torch.equal(mine, theirs)
    assert regions(compiled) == 2


def test_gaps_with_gradients():
    net = nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 3))
    compiled = torchbolt.compile(net)
    for n in (5, 7, 6, 11):
        tokens = torch.randint(0, 40, (2, n))[:, :-1]
        got = torch.autograd.grad(compiled(tokens).square().sum(), net[0].weight)
        want = torch.autograd.grad(net(tokens).square().sum(), net[0].weight)
        torch.testing.assert_close(got, want)
    assert regions(compiled) == 2


def test_a_mark_on_windows_that_overlap_is_an_error():
    x = torch.randn(20).unfold(0, 4, 2)
    torchbolt.mark_dynamic(x, 0)
    with pytest.raises(torchbolt.exc.ConstraintViolationError, match="share memory"):
        torchbolt.compile(rows)(x)
