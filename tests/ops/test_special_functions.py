# tests/ops/test_special_functions.py
"""Functions of ATen's special module: as exact as eager's, in one kernel with what is around them."""

import pytest
import torch
from agree import FLOATS, as_exact, check, lain_otherwise

import torchbolt

special = torch.special


EDGES = torch.tensor([0.0, -0.0, 1.0, 2.0, 0.5, 8.0, 10.0, torch.inf, torch.nan, 1e-3, 25.5, 7.99])
# Name -> the function and the ends of where it is swept.
FUNCTIONS = {
    "lgamma": (torch.lgamma, 0.01, 40), "digamma": (torch.digamma, 0.01, 40), "trigamma": (lambda x: torch.polygamma(1, x), 0.01, 40),
    "polygamma_0": (lambda x: torch.polygamma(0, x), 0.01, 40), "erfinv": (torch.erfinv, -1, 1),
    "erfcx": (special.erfcx, -3, 60), "log_ndtr": (special.log_ndtr, -30, 6), "i0": (torch.i0, -30, 30),
    "i0e": (special.i0e, -60, 60), "i1": (special.i1, -30, 30), "i1e": (special.i1e, -60, 60),
    "multigammaln": (lambda x: special.multigammaln(x + 1.5, 3), 0.01, 40), "gammaln": (special.gammaln, 0.01, 40),
    "psi": (special.psi, 0.01, 40), "erfc": (special.erfc, -3, 6), "k0": (special.modified_bessel_k0, 0, 30),
    "k1": (special.modified_bessel_k1, 0, 30), "k0e": (special.scaled_modified_bessel_k0, 0, 60),
    "k1e": (special.scaled_modified_bessel_k1, 0, 60), "modified_i0": (special.modified_bessel_i0, -30, 30),
    "modified_i1": (special.modified_bessel_i1, -30, 30), "ndtr": (special.ndtr, -9, 6),
}  # fmt: skip
WITHOUT_HALVES = ("erfcx", "log_ndtr", "k0", "k1", "k0e", "k1e", "modified_i0", "modified_i1")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_exact_as_eager(name, dtype):
    if name in WITHOUT_HALVES and dtype not in FLOATS[:2]:
        dtype = FLOATS[0]  # ATen has no kernel of halves
    function, low, high = FUNCTIONS[name]
    numbers = low + (high - low) * torch.rand(5, 400, dtype=torch.float64)
    for _, x in lain_otherwise(numbers.to(dtype)):
        region = check(lambda x: function(x) * 1, x)
        assert region["kernels"] <= (2 if dtype == torch.float64 else 1)  # a long series is cut in two


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_at_edges(name, dtype):
    function = FUNCTIONS[name][0]
    compiled = torchbolt.compile(lambda x: function(x) * 1)
    x = torch.cat([EDGES, -EDGES, -torch.rand(20) * 5]).to(dtype)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), function(x), rtol=2e-4 if dtype == torch.float32 else 1e-9,
                                       atol=1e-5 if dtype == torch.float32 else 1e-11, equal_nan=True)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_waves(name, dtype):
    """Beside mpmath: behind 5 ATen's own are off by 1e-7 in double."""
    mpmath = pytest.importorskip("mpmath")
    function, exactly = getattr(special, name), getattr(mpmath, f"bessel{name[-2]}")
    compiled = torchbolt.compile(lambda x: function(x) * 1)
    x = torch.cat([torch.rand(300) * 30 + 0.01, torch.tensor([8.0, 7.999, 8.001, 0.0, 1e-3, torch.inf, torch.nan])])
    x = torch.cat([x, -x]).to(dtype)
    with torch.no_grad():
        for _ in range(3):
            got = compiled(x)
    assert torch.equal(got.isfinite(), function(x).isfinite()) and torch.equal(got.isinf(), function(x).isinf())
    is_there = got.isfinite()
    exact = torch.tensor([float(exactly(int(name[-1]), v)) for v in x[is_there].tolist()], dtype=torch.float64)
    off, eagers = ((y[is_there].double() - exact).abs() / exact.abs().clamp(min=0.1) for y in (got, function(x)))
    assert off.max() <= max(2 * eagers.max(), 1e-14) and (dtype == torch.float32 or off.max() < 1e-14)


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfinv", "i0", "i0e", "i1", "i1e", "log_ndtr", "erfcx", "ndtr"])
def test_gradients(name):
    function, low, high = FUNCTIONS[name]
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: function(x) * 2)
    x = (low + (high - low) * torch.rand(50)).clamp(-4, 4)

    def gradient(f, dtype=torch.float32):
        given = x.to(dtype).requires_grad_()
        return torch.autograd.grad(f(given).square().sum(), given)[0]

    exact = gradient(lambda x: function(x) * 2, torch.float64)
    for _ in range(3):
        as_exact(gradient(compiled), gradient(lambda x: function(x) * 2), exact)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_densities():
    """What distributions are made of."""
    concentration, rate, x = torch.rand(3, 64) * 4 + 0.1
    check(lambda a, b, x: torch.distributions.Gamma(a, b, validate_args=False).log_prob(x), concentration, rate, x)
    check(lambda a, b, x: torch.distributions.Beta(a, b, validate_args=False).log_prob(x / 5), concentration, rate, x)
    check(lambda a, b: torch.distributions.Beta(a, b, validate_args=False).entropy(), concentration, rate)
    check(lambda x: torch.distributions.Normal(0.0, 1.0, validate_args=False).icdf(x / 5), x)


def spread(low: int, high: int, count: int = 4096) -> torch.Tensor:
    """Of both signs, with all bits of a mantissa, and as many binary exponents."""
    exponents = torch.randint(low, high, (count,)).float()
    return (1 + torch.rand(count)) * torch.exp2(exponents) * (1 - 2.0 * torch.randint(0, 2, (count,)))


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_what_division_leaves(name):
    """Exactly, as in double: where a quotient is too large for a float, ATen's float32 gives NaN."""
    function = getattr(torch, name)
    compiled = torchbolt.compile(lambda x, y: function(x, y) * 1)
    edges = torch.tensor([0.0, 1, 0.7, 7, 1e-45, 1e-38, 3e38, 2.0**28, 2.0**29, torch.inf, torch.nan])
    across, down = torch.meshgrid(torch.cat([edges, -edges]), torch.cat([edges, -edges]), indexing="ij")
    sweeps = [(spread(-5, 5), spread(-5, 5)), (spread(0, 40), spread(0, 2)), (spread(-149, -120), spread(-149, -120))]
    whole = (torch.arange(-2048.0, 2048), torch.arange(4096) % 37 + 1.0)
    for x, y in [*sweeps, whole, (across.flatten(), down.flatten())]:
        exact = function(x, y) if name == "floor_divide" else function(x.double(), y.double()).float()
        with torch.no_grad():
            for _ in range(3):
                got = compiled(x, y)  # the first is eager's own
        torch.testing.assert_close(got, exact, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_what_only_aten_has(dtype):
    """Their results are as large as their operands, which needs no trial; what is around them is ours."""
    x, y = torch.rand(4, 1, 30).to(dtype) * 5 + 0.5, torch.rand(3, 30).to(dtype) * 5 + 1.5
    for function in (torch.igamma, torch.igammac, special.zeta, torch.nextafter):
        check(lambda x, y: function(x + 1, y) * 2, x, y, extern=1, exact=function(x + 1, y) * 2)
    check(lambda y: torch.polygamma(2, y) * 2, y, extern=1, exact=torch.polygamma(2, y) * 2)
    check(lambda y: special.ndtri(y / 8) * 2, y, extern=1, exact=special.ndtri(y / 8) * 2)
    check(lambda y: torch.frexp(y * 2)[0] * 2, y, extern=1, exact=torch.frexp(y * 2)[0] * 2)


@pytest.mark.parametrize("name", ["igamma", "igammac", "zeta", "polygamma", "ndtri"])
def test_gradients_of_what_only_aten_has(name):
    function = {
        "igamma": lambda x: torch.igamma(torch.full_like(x, 2.5).detach(), x), "zeta": lambda x: special.zeta(3.5, x),
        "igammac": lambda x: torch.igammac(torch.full_like(x, 2.5).detach(), x), "polygamma": lambda x: torch.polygamma(2, x),
        "ndtri": lambda x: special.ndtri(x / 8),
    }[name]  # fmt: skip
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: function(x) * 2)
    given = torch.rand(50) * 5 + 1.5

    def gradient(f, dtype=torch.float32):
        x = given.to(dtype).requires_grad_()
        return torch.autograd.grad(f(x).square().sum(), x)[0]

    exact = gradient(lambda x: function(x) * 2, torch.float64)
    for _ in range(3):
        as_exact(gradient(compiled), gradient(lambda x: function(x) * 2), exact)
    assert torchbolt.stats()["eager_fallbacks"] == 0
