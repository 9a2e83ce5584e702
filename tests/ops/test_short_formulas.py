# tests/ops/test_short_formulas.py
"""Operators that are a line of others."""

import pytest
import torch
from agree import FLOATS, check, lain_otherwise

import torchbolt

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-3, 30.0, torch.inf, -torch.inf, torch.nan, 7.0])

ONE = {
    "deg2rad": torch.deg2rad, "rad2deg": torch.rad2deg, "isposinf": torch.isposinf, "isneginf": torch.isneginf,
    "angle": torch.angle, "sinc": torch.sinc, "entr": torch.special.entr, "nansum": torch.nansum,
    "count_nonzero": torch.count_nonzero, "signbit": torch.signbit,
}  # fmt: skip
TWO = {
    "heaviside": torch.heaviside, "xlog1py": torch.special.xlog1py, "logaddexp2": torch.logaddexp2,
    "hypot": torch.hypot,
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ONE)
def test_of_one_number(name, dtype):
    numbers = torch.randn(5, 12) if name == "sinc" else torch.cat([SPECIAL, torch.randn(48)]).reshape(5, 12)
    for _, x in lain_otherwise(numbers.to(dtype)):
        check(lambda x: ONE[name](x), x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", TWO)
def test_of_two_numbers(name, dtype):
    a, b = SPECIAL.repeat_interleave(len(SPECIAL)).to(dtype), SPECIAL.repeat(len(SPECIAL)).to(dtype)
    check(lambda a, b: TWO[name](a, b), a, b)


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("places", [0, 2, -1])
def test_rounding_to_places(places, dtype):
    check(lambda x: torch.round(x, decimals=places), torch.randn(40).to(dtype) * 40)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_counting_integers(dtype):
    x = torch.randint(0, 2, (3, 5)).to(dtype)
    check(lambda x: (torch.count_nonzero(x, 1), x.nansum(0)), x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_parts_no_longer_than(dtype):
    x = torch.randn(4, 3, 5).to(dtype)
    for p in (1, 2, 3, torch.inf):
        for dim in (0, -1):
            check(lambda x, p=p, dim=dim: torch.renorm(x, p, dim, 2.0), x)


@pytest.mark.parametrize("p", [0, 1, 2, 2.5, torch.inf, -torch.inf])
def test_distance_of_two_tensors(p):
    check(lambda a, b: torch.dist(a, b, p), torch.randn(4, 5), torch.randn(5))


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_cross_products(dtype):
    a, b = torch.randn(4, 3, 5).to(dtype), torch.randn(1, 3, 5).to(dtype)
    check(lambda a, b: torch.linalg.cross(a, b, dim=1), a, b)
    check(lambda a, b: torch.linalg.cross(a, b), torch.randn(4, 3).to(dtype), torch.randn(4, 3).to(dtype))


def test_outer_products_onto():
    x, a, b = torch.randn(4, 5), torch.randn(4), torch.randn(5)
    check(lambda x, a, b: torch.addr(x, a, b, beta=0.5, alpha=2), x, a, b)
    check(lambda x, a, b: torch.addr(x, a, b, beta=0), torch.full((4, 5), torch.nan), a, b)


def test_the_longest_side_does_not_overflow():
    check(lambda a, b: torch.hypot(a, b), torch.tensor([1e30, 3e-30, 0.0]), torch.tensor([1e30, 4e-30, -0.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_one_of_a_few(dtype):
    x, few = torch.randint(0, 9, (4, 5)).to(dtype), torch.tensor([3, 7, 8]).to(dtype)
    check(lambda x, few: torch.isin(x, few) & (x > 2), x, few)
    check(lambda x, few: torch.isin(x, few, invert=True), x, few)
    check(lambda x: torch.signbit(x - 4), x)


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_covariances(dtype):
    x = torch.randn(4, 9).to(dtype)
    check(lambda x: torch.cov(x) * 1, x)
    check(lambda x: torch.cov(x[0], correction=0) * 1, x)
    check(lambda x: torch.corrcoef(x) * 1, x)


@pytest.mark.parametrize("dtype", FLOATS[2:])
def test_covariances_of_halves_are_products_of_halves(dtype):
    x = torch.randn(16, 40).to(dtype)
    check(lambda x: torch.cov(x) * 1, x)
    graph = torchbolt.explain(torch.cov)(x).graphs[0]
    assert "f16[16, 40] = cast(" in graph  # where there are no such products they are widened again


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_whole_numbers_by_one(mode):
    for dtype in (torch.int64, torch.int32):
        x = torch.randint(-9, 9, (4, 5)).to(dtype)
        for by in (3, -2):
            check(lambda x, by=by: torch.div(x, by, rounding_mode=mode) + 1, x)
    check(lambda x, y: torch.div(x, y, rounding_mode=mode) + 1, x, x.abs() + 1, extern=1)  # by 0 it would raise


def test_least_and_most():
    check(lambda x: torch.aminmax(x, dim=1), torch.randn(4, 7))
    check(lambda x: torch.aminmax(x), torch.tensor([1.0, torch.nan, 2.0]))


def test_a_row_in_its_place():
    x, row = torch.randn(4, 5), torch.randn(5)
    check(lambda x, r: (torch.select_scatter(x, r, 0, -1), torch.select_scatter(x, r[:4], 1, 2)), x, row)


def test_what_a_mask_takes_in_order():
    x, source = torch.randn(3, 4, 5), torch.randn(70)
    mask = torch.rand(3, 4, 1) > 0.5
    check(lambda x, m, s: x.masked_scatter(m.expand_as(x), s), x, mask, source)
    check(lambda x, m, s: x.clone().masked_scatter_(m, s) + 1, x, mask, source)


def test_a_mask_of_more_places_than_numbers_raises():
    import torchbolt

    compiled = torchbolt.compile(lambda x, m, s: x.masked_scatter(m, s) * 2)
    x, few = torch.randn(6), torch.randn(3)
    with torch.no_grad():
        for given in ([True] * 2 + [False] * 4, [False] * 3 + [True] * 3):
            mask = torch.tensor(given)
            assert torch.equal(compiled(x, mask, few), x.masked_scatter(mask, few) * 2)
        with pytest.raises(RuntimeError):
            compiled(x, torch.ones(6, dtype=torch.bool), few)


def test_views_in_memory_of_their_own():
    def copies(x):
        return (torch.permute_copy(x, (1, 0)), torch.expand_copy(x[:1], (3, 5)), torch.view_copy(x, (20,)),
                torch.unsqueeze_copy(x, 1), torch.diagonal_copy(x), torch.slice_copy(x, 1, 1, 4), torch.t_copy(x),
                torch.select_copy(x, 1, 2), *torch.unbind_copy(x), *torch.split_copy(x, 2))  # fmt: skip

    check(copies, torch.randn(4, 5))


def test_numbers_in_parts_of_a_range():
    x = torch.cat([torch.randn(50) * 2, torch.tensor([-2.0, 2.0, 0.0])])
    check(lambda x: torch.histc(x, 7, -2, 2), x)
    check(lambda x: torch.histc(x, bins=8, min=0, max=7), torch.randint(0, 8, (3, 20)).float())
