# tests/end_to_end/test_element_types.py
"""Element types that no kernel computes with: such tensors are moved about, and ATen computes with them."""

from __future__ import annotations

import torch

import torchbolt


def agree(function, make, calls=4):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for _ in range(calls):
        inputs = make()
        for ours, eagers in zip(compiled(*inputs), function(*inputs), strict=True):
            assert (ours.dtype, ours.stride()) == (eagers.dtype, eagers.stride())
            assert torch.equal(ours.double(), eagers.double())
    stats = torchbolt.stats()
    assert (stats["regions"], stats["graph_breaks"], stats["eager_fallbacks"]) == (1, 0, 0)


def test_float8():
    def quantised(x, scale):
        q = (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return q, q.to(torch.float32) / scale, q.t().contiguous(), q[2:4]

    agree(quantised, lambda: (torch.randn(8, 8), torch.tensor(3.0)))


def test_weights_in_float8():
    def linear(weight, x, scale):
        return ((x @ weight.to(x.dtype)) * scale, weight)

    agree(linear, lambda: (torch.randn(8, 8).to(torch.float8_e5m2), torch.randn(4, 8), torch.tensor(2.0)))


def test_integers_without_a_sign():
    def whole(x):
        u = x.to(torch.int64).abs().to(torch.uint64)
        return u, u.to(torch.float32) * 2, u.reshape(2, 32), u[1:5], x.abs().to(torch.uint16), x.abs().to(torch.uint32)

    agree(whole, lambda: (torch.randn(64) * 100,))


def test_gradients_of_what_is_kept_in_float8():
    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.to(torch.float8_e4m3fn))
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0].to(gradient.dtype)

    def gradient(function, x):
        (g,) = torch.autograd.grad(function(x.requires_grad_()).sum(), x)
        return g

    def function(x):
        return Kept.apply(x.sin()).exp()

    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for _ in range(4):
        x = torch.randn(16)
        torch.testing.assert_close(gradient(compiled, x.clone()), gradient(function, x.clone()))
    assert torchbolt.stats()["eager_fallbacks"] == 0
