# tests/ops/test_movements.py
"""Gradients that put elements back where they came from, scatters of one element a row, indices side by side."""

import pytest
import torch
import torch.nn.functional as F
from agree import FLOATS, check, lain_otherwise

import torchbolt

aten = torch.ops.aten


PUT_BACK = {
    "slice": ((4, 3, 5), lambda g: aten.slice_backward(g, [4, 9, 5], 1, 2, 5, 1)),
    "slice from the end": ((4, 3, 5), lambda g: aten.slice_backward(g, [4, 9, 5], 1, -4, -1, 1)),
    "slice to the end": ((4, 3, 5), lambda g: aten.slice_backward(g, [4, 9, 5], -2, 6, 2**63 - 1, 1)),
    "slice with steps": ((4, 3, 5), lambda g: aten.slice_backward(g, [4, 9, 5], 1, 1, 9, 3)),
    "slice of everything": ((4, 3, 5), lambda g: aten.slice_backward(g, [4, 3, 5], 0, 0, 4, 1)),
    "select": ((4, 5), lambda g: aten.select_backward(g, [4, 6, 5], 1, 2)),
    "select from the end": ((4, 5), lambda g: aten.select_backward(g, [4, 5, 6], -1, -1)),
    "diagonal": ((4,), lambda g: aten.diagonal_backward(g, [4, 5], 0, 0, 1)),
    "upper diagonal": ((3, 4), lambda g: aten.diagonal_backward(g, [5, 3, 4], 1, 2, 0)),
    "lower diagonal": ((3, 2), lambda g: aten.diagonal_backward(g, [4, 3, 5], -2, 0, 2)),
    "pixels": ((2, 8, 3, 5), lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2))),
}


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64])
@pytest.mark.parametrize("name", PUT_BACK)
def test_put_back(name, dtype):
    shape, fn = PUT_BACK[name]
    g = torch.randn(shape, dtype=dtype) if dtype.is_floating_point else torch.randint(-9, 9, shape)
    for _, each in lain_otherwise(g):
        check(fn, each)


IMAGES = {
    "upsampled": ((2, 3, 8, 9), lambda g: aten.upsample_nearest2d_backward(g, [8, 9], [2, 3, 4, 3])),
    "upsampled by scales": ((2, 3, 8, 6), lambda g: aten.upsample_nearest2d_backward(g, [8, 6], [2, 3, 4, 3], 2.0, 2.0)),
    "upsampled signals": ((2, 3, 9), lambda g: aten.upsample_nearest1d_backward(g, [9], [2, 3, 3])),
    "adaptive": ((2, 3, 2, 3), lambda g: aten._adaptive_avg_pool2d_backward(g, g.new_zeros(2, 3, 8, 6))),
    "global": ((2, 3, 1, 1), lambda g: aten._adaptive_avg_pool2d_backward(g, g.new_zeros(2, 3, 7, 5))),
    "adaptive forward": ((2, 3, 8, 6), lambda x: aten._adaptive_avg_pool2d(x, [4, 2])),
    "average": ((2, 3, 4, 3), lambda g: aten.avg_pool2d_backward(
        g, g.new_zeros(2, 3, 8, 9), [2, 3], [2, 3], [0, 0], False, True, None)),
    "average with a rest": ((2, 3, 4, 3), lambda g: aten.avg_pool2d_backward(
        g, g.new_zeros(2, 3, 9, 7), [2], [], [0], False, True, None)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", IMAGES)
def test_images(name, dtype):
    shape, fn = IMAGES[name]
    if name == "upsampled signals" and dtype is torch.float16:
        return  # ATen has none on the processor
    check(fn, torch.randn(shape, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(8, 6), (9, 7), (6, 5)])
def test_largest_of_windows(size, dtype):
    x = torch.randn(2, 3, *size, dtype=dtype)
    for name, each in lain_otherwise(x):
        y, places = aten.max_pool2d_with_indices(each, [2], [2])
        g = torch.randn_like(y)
        check(lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, [2], [2], [0], [1], False, i), g, each, places,
              wide=[g.double(), each.double(), places])  # fmt: skip


def test_windows_that_overlap_stay_one_call():
    x = torch.randn(2, 3, 9, 9)
    y, places = aten.max_pool2d_with_indices(x, [3], [2], [1])
    check(lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, [3], [2], [1], [1], False, i), y, x, places,
          extern=1)  # fmt: skip


SCATTERS = {
    "values": lambda x, i, s: x.scatter(1, i, s),
    "in place": lambda x, i, s: (x * 1).scatter_(1, i, s),
    "a number": lambda x, i, s: x.scatter(1, i, 2.5) + s,
    "added": lambda x, i, s: x.scatter_add(1, i, s),
    "one of many": lambda x, i, s: torch.zeros_like(x).scatter_(1, i, 1.0) * s,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SCATTERS)
def test_scatter_of_one_a_row(name, dtype):
    x, i, s = torch.randn(6, 9, dtype=dtype), torch.randint(0, 9, (6, 1)), torch.randn(6, 1, dtype=dtype)
    for _, each in lain_otherwise(x):
        check(SCATTERS[name], each, i, s)


def test_scatter_out_of_range_raises():
    compiled = torchbolt.compile(SCATTERS["values"])
    x, i, s = torch.randn(3, 4), torch.tensor([[0], [3], [1]]), torch.randn(3, 1)
    compiled(x, i, s)
    for bad in (4, -1):
        wrong = i.clone()
        wrong[1] = bad
        with pytest.raises(RuntimeError, match="out of bounds"):
            compiled(x, wrong, s)
    assert torch.equal(compiled(x, i, s), x.scatter(1, i, s))


INDICES = {
    "two": lambda x, i, j: x[i, j],
    "two behind": lambda x, i, j: x[:, i, j] * 2,
    "two at the end": lambda x, i, j: x[..., i, j],
    "one behind": lambda x, i, j: x[:, i],
    "broadcast": lambda x, i, j: x[:, i[:, None], j[None]],
    "a number among them": lambda x, i, j: x[i, torch.tensor([2]), j],
}


@pytest.mark.parametrize("name", INDICES)
def test_indices_side_by_side(name):
    x, i, j = torch.randn(5, 6, 5), torch.tensor([0, 4, -5, 2]), torch.tensor([1, -1, 0, 4])
    for _, each in lain_otherwise(x):
        check(INDICES[name], each, i, j)


@pytest.mark.parametrize("name", ["two", "two behind", "one behind"])
def test_indices_out_of_range_raise(name):
    compiled = torchbolt.compile(INDICES[name])
    x, i, j = torch.randn(5, 6, 5), torch.tensor([0, 4, 1]), torch.tensor([1, 3, 0])
    compiled(x, i, j)
    for bad in (6, -7):
        with pytest.raises(IndexError):
            compiled(x, torch.tensor([0, bad, 1]), j)
    torch.testing.assert_close(compiled(x, i, j), INDICES[name](x, i, j))


def test_a_matrix_by_a_vector_added():
    a, b, c = torch.randn(4), torch.randn(4, 5), torch.randn(5)
    check(lambda a, b, c: torch.addmv(a, b, c, beta=0.5, alpha=2), a, b, c)


def test_places_in_one_line():
    x, i = torch.randn(3, 4, 2), torch.tensor([[0, 23], [-1, -24]])
    for _, each in lain_otherwise(x):
        check(lambda x, i: torch.take(x, i) * 2, each, i)
    compiled = torchbolt.compile(lambda x, i: torch.take(x, i))
    for bad in (0, 24, -25):
        i = torch.tensor([1, bad, 2])
        if bad == 0:
            assert torch.equal(compiled(x, i), torch.take(x, i))
        else:
            with pytest.raises(IndexError):
                compiled(x, i)


def test_matrices_along_a_diagonal():
    check(lambda *t: torch.block_diag(*t) + 1, torch.randn(2, 3), torch.randn(4), torch.tensor(2.0), torch.randn(1, 1))


def test_large_matrices_along_a_diagonal_stay_one_call():
    check(lambda *t: torch.block_diag(*t) + 1, *torch.randn(3, 90, 110), extern=1)


def test_each_element_several_times():
    check(lambda x: torch.repeat_interleave(x, 3) * 2, torch.randn(4, 5))


def test_signs():
    check(lambda x: torch.sgn(x), torch.tensor([-2.0, 0.0, 3.0]))
