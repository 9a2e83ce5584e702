# tests/ops/test_arrangements.py
"""Elements put elsewhere, tensors made of numbers, distances between rows, and what is left of NaN."""

import pytest
import torch
import torch.nn.functional as F
from agree import FLOATS, check, lain_otherwise

import torchbolt

aten = torch.ops.aten


REARRANGED = {
    "channels": ((2, 6, 3, 5), lambda x: F.channel_shuffle(x, 3)),
    "a quarter turn": ((2, 3, 4, 5), lambda x: torch.rot90(x, 1, (2, 3))),
    "half a turn": ((2, 3, 4, 5), lambda x: torch.rot90(x, 2, (-1, 1))),
    "three quarters": ((3, 4), lambda x: torch.rot90(x, -1)),
    "no turn": ((3, 4), lambda x: torch.rot90(x, 4)),
    "tiles": ((2, 3), lambda x: (x.tile(2), x.tile(2, 1, 3))),
    "diagonals": ((2, 3), lambda x: (torch.diag_embed(x), torch.diag_embed(x, 2), torch.diag_embed(x, -1, 0, 2))),
    "a diagonal": ((3, 5), lambda x: (torch.diag(x), torch.diag(x, 2), torch.diag(x, -1))),
    "on a diagonal": ((4,), lambda x: (torch.diag(x), torch.diag(x, 2), torch.diag(x, -1))),
    "trace": ((3, 5), lambda x: (torch.trace(x), torch.trace(x.mT))),
    "instance norm": ((2, 3, 4, 5), lambda x: F.instance_norm(x) if x.is_floating_point() else x),
}


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64])
@pytest.mark.parametrize("name", REARRANGED)
def test_rearranged(name, dtype):
    shape, fn = REARRANGED[name]
    x = torch.randn(shape, dtype=dtype) if dtype.is_floating_point else torch.randint(-9, 9, shape)
    if name == "trace" and dtype is torch.float16:
        return  # ATen has none on the processor
    for _, each in lain_otherwise(x):
        check(fn, each)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size,step", [(3, 1), (3, 2), (2, 2), (2, 3)])
def test_windows_of_tensors_come_back(size, step, dtype):
    x = torch.randn(3, 9, 4, dtype=dtype)
    g = torch.randn_like(x.unfold(1, size, step))
    for _, each in lain_otherwise(g):
        check(lambda g: aten.unfold_backward(g, [3, 9, 4], 1, size, step), each)


def test_made_of_numbers():
    x = torch.randn(5, 7)
    check(lambda x: x * torch.linspace(-1, 2, 7) + torch.linspace(0, 1, 1), x)
    check(lambda x: x * torch.linspace(3, -1, 7, dtype=torch.float64), x)
    check(lambda x: x * torch.eye(5, 7) + torch.eye(7)[0], x)


def test_one_hot():
    index = torch.randint(0, 7, (3, 4))
    fn = lambda i: F.one_hot(i, 7) * 2  # noqa: E731
    check(fn, index)
    compiled = torchbolt.compile(fn)
    compiled(index)
    for bad in (7, -1):
        index[1, 1] = bad
        with pytest.raises(RuntimeError, match="Class values must be"):
            compiled(index)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32])
def test_no_number(dtype):
    x = torch.tensor([1.0, torch.nan, torch.inf, -torch.inf, -2.0])
    x = x.to(dtype) if dtype.is_floating_point else x.nan_to_num(0, 1, 2).to(dtype)
    for fn in (
        lambda x: torch.nan_to_num(x),
        lambda x: torch.nan_to_num(x, 2.0, 3.0),
        lambda x: x.nan_to_num(neginf=-5),
    ):
        compiled = torchbolt.compile(fn)
        assert torch.equal(compiled(x), fn(x)) and torch.equal(compiled(x), fn(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("rows", [(5, 7), (30, 6)])
def test_distances_of_all_rows(rows, p, dtype):
    a, b = torch.randn(2, rows[0], 6, dtype=dtype), torch.randn(rows[1], 6, dtype=dtype)
    for mode in ("use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist"):
        check(lambda a, b: torch.cdist(a, b, p, compute_mode=mode), a, b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_distances_of_pairs(p, dtype):
    a, b = torch.randn(2, 5, 6, dtype=dtype), torch.randn(2, 5, 6, dtype=dtype)
    if p != 3 or dtype.itemsize > 2:
        check(lambda a, b: F.pairwise_distance(a, b, p), a, b)
    check(lambda a, b: F.pairwise_distance(a, b[0, 0], 2.0, keepdim=True), a, b)
    check(lambda a: torch.linalg.vector_norm(a, p, dim=1), a)


@pytest.mark.parametrize("dtype", FLOATS)
def test_deviation_and_mean(dtype):
    check(lambda x: torch.std_mean(x, 1), torch.randn(4, 9, dtype=dtype))
    check(lambda x: torch.std_mean(x, correction=0), torch.randn(4, 9, dtype=dtype))
