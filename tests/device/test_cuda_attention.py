# tests/device/test_cuda_attention.py
"""Attention on CUDA is computed by a library's fused kernels, whatever its batches look like and however its mask lies.
Needs a CUDA device.

ATen itself writes attention of other than four dimensions out as products and a softmax, and copies masks whose rows
it cannot read as they lie, in each call.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from on_cuda import kernels_of, randn
from torch import nn

import torchbolt

KINDS = [torch.bfloat16, torch.float32]


def compared(f, *args):
    """The compiled function after its first calls; its results are no further from float64's than twice eager's."""
    compiled = torchbolt.compile(f)
    with torch.no_grad():
        for _ in range(3):
            got = compiled(*args)
        want = f(*args)
        exact = f(*(t.double() if t.is_floating_point() else t for t in args))
    assert got.stride() == want.stride()
    error, eagers = ((t.double() - exact).abs().max() for t in (got, want))
    assert error <= 2 * eagers + 1e-6
    return compiled


def windows(qkv):
    b, t, n, width = qkv.shape
    q, k, v = qkv.reshape(b, t, n, 3, 4, width // 12).permute(3, 0, 4, 1, 2, 5).unbind(0)
    return F.scaled_dot_product_attention(q, k, v).permute(0, 2, 3, 1, 4).reshape(b, t, n, width // 3)


@pytest.mark.parametrize("dtype", KINDS)
def test_windows_of_images_are_batches(dtype):
    qkv = randn(2, 9, 49, 384, dtype=dtype)
    compiled = compared(windows, qkv)
    with torch.no_grad():
        names = kernels_of(lambda: compiled(qkv))
    assert not any("softmax" in name for name in names), names


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_sequences_without_heads(dtype, masked):
    q, k, v = (randn(6, 40, 32, dtype=dtype) for _ in range(3))
    mask = randn(6, 40, 40, dtype=dtype)
    if masked:
        compared(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, mask)
    else:
        compared(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)


def trained(f, of_four, *args):
    """Gradients of the compiled function, no further from float64's than twice eager's, and kernels of a pass.

    `of_four`: the same with attention of four dimensions, for which eager has the fused kernels that f is given here:
    these round the weights to halves, where eager's written-out form of f keeps them in float32.
    """
    compiled = torchbolt.compile(f)
    leaves = [t.detach().requires_grad_() for t in args]
    exact = [t.detach().double().requires_grad_() for t in args]
    tangents = torch.randn_like(f(*leaves))
    for _ in range(3):
        got = torch.autograd.grad(compiled(*leaves), leaves, tangents)
    eagers = [torch.autograd.grad(g(*leaves), leaves, tangents) for g in (f, of_four)]
    true = torch.autograd.grad(f(*exact), exact, tangents.double())
    for ours, *want, t in zip(got, *eagers, true, strict=True):
        error, *bounds = ((g.double() - t).abs().max() for g in (ours, *want))
        assert error <= 2 * max(bounds) + 1e-6
    return kernels_of(lambda: torch.autograd.grad(compiled(*leaves), leaves, tangents))


@pytest.mark.parametrize("dtype", KINDS)
def test_windows_of_images_in_training(dtype):
    def of_four(x):
        q, k, v = x.reshape(18, 49, 3, 4, 32).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 9, 49, 128)

    names = trained(windows, of_four, randn(2, 9, 49, 384, dtype=dtype))
    assert not any("softmax" in name for name in names), names


@pytest.mark.parametrize("dtype", KINDS)
def test_sequences_without_heads_in_training(dtype):
    q, k, v = (randn(6, 40, 32, dtype=dtype) for _ in range(3))

    def of_four(*qkv):
        return attend(*(t[:, None] for t in qkv))[:, 0]

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    names = trained(attend, of_four, q, k, v)
    assert not any("softmax" in name for name in names), names


@pytest.mark.parametrize("dtype", KINDS)
def test_pixels_whose_channels_are_apart_in_training(dtype):
    def attend(x):
        q, k, v = x.reshape(2, 3, 4, 32, 49).transpose(-1, -2).unbind(1)
        return F.scaled_dot_product_attention(q, k, v)

    def of_rows(x):
        q, k, v = x.reshape(2, 3, 4, 32, 49).transpose(-1, -2).contiguous().unbind(1)
        return F.scaled_dot_product_attention(q, k, v)

    names = trained(attend, of_rows, randn(2, 384, 7, 7, dtype=dtype))
    assert not any("softmax" in name for name in names), names


class Biased(nn.Module):
    """With a bias by relative positions, as image transformers have it."""

    def __init__(self, length, heads):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2 * length - 1, heads))
        at = torch.arange(length)
        self.register_buffer("at", (at[:, None] - at + length - 1).flatten())
        self.length = length

    def forward(self, q, k, v):
        bias = self.table[self.at].view(self.length, self.length, -1).permute(2, 0, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.contiguous().unsqueeze(0))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("length", [49, 64, 197])
def test_biases_lie_in_rows(dtype, length):
    model = Biased(length, 4).cuda().to(dtype)
    exact = Biased(length, 4).cuda().double()
    exact.load_state_dict(model.state_dict())
    q, k, v = (randn(3, 4, length, 32, dtype=dtype) for _ in range(3))
    compiled = torchbolt.compile(model)
    with torch.no_grad():
        for _ in range(3):
            got = compiled(q, k, v)
        want, right = model(q, k, v), exact(q.double(), k.double(), v.double())
        names = kernels_of(lambda: compiled(q, k, v))
    error, eagers = ((t.double() - right).abs().max() for t in (got, want))
    assert error <= 2 * eagers + 1e-6
    assert not any("elementwise" in name or "bolt_" in name for name in names), names


def test_a_bias_that_is_returned_lies_as_eagers():
    def f(table, at, q):
        bias = table[at].view(13, 13, 4).permute(2, 0, 1).unsqueeze(0)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=bias), bias

    table, at = randn(25, 4, dtype=torch.bfloat16), torch.randint(25, (169,), device="cuda")
    q = randn(2, 4, 13, 32, dtype=torch.bfloat16)
    compiled = torchbolt.compile(f)
    for _ in range(3):
        (y, bias), (want, eagers) = compiled(table, at, q), f(table, at, q)
        torch.testing.assert_close(y, want, rtol=2e-2, atol=2e-2)
        assert torch.equal(bias, eagers)
        assert bias.stride() == eagers.stride()
