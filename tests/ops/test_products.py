# tests/ops/test_products.py
"""Products over named dimensions, as views of matrix products, and activations that users call by name."""

import pytest
import torch
import torch.nn.functional as F
from agree import FLOATS, check
from test_windows import by_autograd

import torchbolt

SIZES = {"b": 2, "h": 3, "i": 4, "j": 5, "d": 6, "k": 7}
EQUATIONS = [
    "bhid,bhjd->bhij", "bhij,bhjd->bihd", "bid,bjd->bij", "id,dk->ik", "id,kd", "bid,d->bi", "bi,bj->bij", "i,j->ij", "i,i->",
    "bhid,dk->bhik", "bhid,hdk->bihk", "bhi,bhi->bh", "bhi,bhi", "bij,bk->kb", "ij->ji", "bij->jb", "bij", "ji , jk -> ki",
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation, dtype):
    sides = equation.replace(" ", "").split("->")[0].split(",")
    tensors = [torch.randn([SIZES[label] for label in side], dtype=dtype) for side in sides]
    check(lambda *tensors: torch.einsum(equation, *tensors), *tensors)
    check(lambda *tensors: torch.einsum(equation, *(t * 2 for t in tensors)) + 1, *tensors)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_products(dtype):
    x, a, b = (torch.randn(*s, dtype=dtype) for s in ((4, 5), (3, 4, 6), (3, 6, 5)))
    check(lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2), x, a, b, extern=1)
    check(lambda x, a, b: torch.addbmm(x, a, b, beta=0), x[0], a, b, extern=1)
    check(lambda a, b: torch.vdot(a, b), a[0, 0], b[0, :, 0])


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_bilinear(dtype):
    a, b, w, bias = (torch.randn(*s, dtype=dtype) for s in ((3, 2, 4), (3, 2, 5), (6, 4, 5), (6,)))
    check(lambda a, b, w, bias: F.bilinear(a, b, w, bias), a, b, w, bias)
    check(lambda a, b, w: F.bilinear(a, b, w), a[0, 0], b[0, 0], w)
    torchbolt.reset()
    compiled = torchbolt.compile(F.bilinear)
    for _ in range(3):
        mine, theirs = (
            torch.autograd.grad(f(*given).square().sum(), given)
            for f in (compiled, F.bilinear)
            for given in [[t.clone().requires_grad_() for t in (a, b, w, bias)]]
        )
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    regions = torchbolt.api.compiled_of(compiled)._regions()
    assert all(region["extern_calls"] == 0 for region in regions)


def test_what_einsum_leaves_to_aten():
    x, y = torch.randn(3, 4, 4), torch.randn(3, 4, 5)
    for equation, tensors in (
        ("bii->b", [x]),
        ("...ij,...jk->...ik", [x, y]),
        ("bij,bjk,bk->bi", [x, y, torch.randn(3, 5)]),
    ):
        check(lambda *tensors: torch.einsum(equation, *tensors), *tensors, extern=1)
    check(lambda x, y: torch.einsum("bij,bjk->bik", x, y), torch.randn(1, 4, 4), y, extern=1)


def test_gradients_of_einsum():
    by_autograd(lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dimensions_by_number(dtype):
    a, b = torch.randn(2, 3, 4, dtype=dtype), torch.randn(5, 4, 3, dtype=dtype)
    check(lambda a, b: torch.tensordot(a, b, dims=([1, 2], [-1, 1])), a, b)
    check(lambda a, b: torch.tensordot(a, b[0], dims=1), a, b)
    check(lambda a, b: torch.outer(a[0, 0], b[0, 0]), a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations(dtype):
    x, w = torch.randn(2, 3, 5, dtype=dtype), torch.randn(3, dtype=dtype)
    check(lambda x, w: F.prelu(x, w) + F.prelu(x, w[:1]), x, w)
    check(lambda x: F.selu(x), x)
    check(lambda x: torch.frac(x * 3), x)
    for a, b in ((x, x.flip(0)), (torch.full_like(x, torch.inf), x), (torch.full_like(x, -torch.inf),) * 2):
        assert torch.equal(torch.logaddexp(a, b).isfinite(), torch.logaddexp(a, b).isfinite())
    check(lambda x: torch.logaddexp(x, x.flip(0)), x)
