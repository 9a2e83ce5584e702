# tests/end_to_end/test_moved_numbers.py
"""What no kernel computes with, but moves: complex numbers, floats of eight bits, whole numbers without a sign."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


def in_parts(x):
    return torch.cat([x[1:], x[:1]]), torch.stack([x, x], -1), x.T.contiguous()


def around(x):
    return x.roll((1, 3), (0, 1)), x.roll(1, 0).t().clone()


def at_places(x):
    index = torch.tensor([3, 0, 2])
    return x[index], x.index_select(1, index), x[-1].repeat(3, 2)


def into_zeros(x):
    out = torch.zeros(6, 9, dtype=x.dtype)
    out[1:5, :8] = x
    out[0] = out[1]
    return out, torch.zeros_like(x)


def gathered(x):
    return x.flip(1), x.gather(1, torch.arange(8).reshape(4, 2)), x.tril(), F.pad(x, (1, -1, 0, 2))


def of_type(dtype):
    if dtype.is_complex:
        return torch.randn(4, 8, dtype=dtype)
    return torch.randint(0, 100, (4, 8), dtype=torch.uint8).to(dtype)


def bits(t):
    return t.contiguous().view(torch.uint8)


FUNCTIONS = [in_parts, around, at_places, into_zeros]
TYPES = [torch.uint16, torch.uint32, torch.float8_e4m3fn]
CASES = [*((fn, torch.complex64) for fn in [*FUNCTIONS, gathered]), *((fn, t) for fn in FUNCTIONS for t in TYPES)]


@pytest.mark.parametrize(("fn", "dtype"), CASES, ids=lambda case: getattr(case, "__name__", str(case)))
def test_kernels_move_them(fn, dtype):
    torchbolt.reset()
    x = of_type(dtype)
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        x = of_type(dtype)
        for got, expected in zip(compiled(x), fn(x), strict=True):
            assert got.stride() == expected.stride() and torch.equal(bits(got), bits(expected))
    assert (torchbolt.stats()["eager_fallbacks"], torchbolt.stats()["graph_breaks"]) == (0, 0)
    assert torchbolt.explain(fn)(x).extern_calls == 0


def test_types_are_not_mixed():
    """What is copied into complex numbers becomes complex first, which only ATen does."""

    def f(x, y):
        out = torch.zeros(4, 8, dtype=torch.complex64)
        out[:2] = x[:2]
        out[2:] = y[2:]
        return out, torch.cat([x, y])

    x, y = torch.randn(4, 8), torch.randn(4, 8, dtype=torch.complex64)
    compiled = torchbolt.compile(f)
    for _ in range(4):
        for got, expected in zip(compiled(x, y), f(x, y), strict=True):
            assert torch.equal(got, expected)


def test_conjugates_stand_where_they_are_moved():
    def f(x):
        y = x.conj()
        return torch.cat([y[1:], x[:1]]), y.t().clone(), F.pad(y, (1, 1))

    compiled = torchbolt.compile(f)
    for _ in range(4):
        x = torch.randn(4, 8, dtype=torch.complex64)
        for got, expected in zip(compiled(x), f(x), strict=True):
            assert torch.equal(got.resolve_conj(), expected.resolve_conj())


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: low frequencies are written into a spectrum of zeros."""

    def __init__(self):
        super().__init__()
        self.low = nn.Parameter(torch.randn(3, 3, 4, 4, dtype=torch.complex64))
        self.high = nn.Parameter(torch.randn(3, 3, 4, 4, dtype=torch.complex64))

    def forward(self, x):
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros(*spectrum.shape, dtype=torch.complex64)
        out[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :4, :4], self.low)
        out[:, :, -4:, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -4:, :4], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


def gradients(fn, layer, x):
    x = x.detach().clone().requires_grad_()
    y = fn(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]


def test_a_spectral_layer_is_trained_by_programs():
    """What is written into parts of a spectrum made the region a replay where gradients are needed."""
    torch.manual_seed(0)
    torchbolt.reset()
    layer, exact = Spectral(), Spectral()
    exact.load_state_dict(layer.state_dict())
    exact.to(torch.complex128)
    compiled = torchbolt.compile(layer)
    for _ in range(4):
        x = torch.randn(2, 3, 12, 12)
        mine = gradients(compiled, layer, x)
        for other in (gradients(layer, layer, x), gradients(exact, exact, x.double())):
            for a, b in zip(mine, other, strict=True):
                torch.testing.assert_close(a.to(b.dtype), b, rtol=1e-4, atol=1e-3)
    assert (torchbolt.stats()["eager_fallbacks"], torchbolt.stats()["graph_breaks"]) == (0, 0)


@pytest.mark.parametrize("fn", [torch.fft.rfft, torch.fft.irfft], ids=["rfft", "irfft"])
def test_gradients_of_spectra_are_put_in_place_by_kernels(fn):
    """A copy of the zeros, and one more for each part that was written, took longer than the transform."""
    compiled = torchbolt.compile(fn)
    dtype = torch.float32 if fn is torch.fft.rfft else torch.complex64
    for _ in range(4):
        x = torch.randn(4, 33, dtype=dtype, requires_grad=True)
        y = fn(x)
        weights = torch.randn_like(y)
        (mine,) = torch.autograd.grad(compiled(x), x, weights)
        torch.testing.assert_close(mine, torch.autograd.grad(y, x, weights)[0])
    assert torchbolt.explain(compiled)(x).extern_calls <= 3
