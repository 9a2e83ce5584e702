# tests/end_to_end/test_newer_torch.py
"""What torch 2.14 does in C that was Python before is recorded as it was (torchbolt/stand_ins/versions.py)."""

from __future__ import annotations

import pytest
import torch
from autograd_functions import Scaled

import torchbolt


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@torch.library.custom_op("torchbolt_test::tripled", mutates_args=())
def tripled(x: torch.Tensor, k: float = 3.0) -> torch.Tensor:
    return x * k


@tripled.register_fake
def _(x, k=3.0):
    return torch.empty_like(x)


def one_region(fn, *args):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("grad", [False, True])
def test_defaults_are_bound(grad):
    x = torch.randn(4)
    with torch.set_grad_enabled(grad):
        one_region(lambda x: Scaled.apply(x + 1) + Scaled.apply(x, 2.0), x)
        one_region(lambda x: Plain.apply(x + 1) * 3, x)


def test_gradients():
    compiled = torchbolt.compile(lambda x: (Scaled.apply(x * 1) + Plain.apply(x)).sum(), fullgraph=True)
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 5.0))


def test_operators_defined_in_python():
    one_region(lambda x: tripled(x + 1) * tripled(x, 2.0), torch.randn(4))
    one_region(
        lambda x: torch.ops.torchbolt_test.tripled(x + 1) + torch.ops.torchbolt_test.tripled.default(x), torch.randn(4)
    )


def test_errors_are_torchs():
    compiled = torchbolt.compile(lambda x: Plain.apply(x, unknown=1))
    with pytest.raises(TypeError):
        compiled(torch.randn(4))


def test_transforms():
    def fn(x):
        return torch.func.grad(lambda y: Scaled.apply(y).sin().sum())(x)

    compiled, x = torchbolt.compile(fn), torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.skipif(not hasattr(torch.autograd.function.FunctionCtx, "set_output_grad_dtype"), reason="torch 2.14's")
def test_types_of_gradients():
    class Wide(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_output_grad_dtype(torch.float32)
            return x.to(torch.bfloat16)

        @staticmethod
        def backward(ctx, grad):
            assert grad.dtype == torch.float32
            return grad

    compiled = torchbolt.compile(lambda x: Wide.apply(x).float().mul(1.0 / 3).sum())
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        compiled(x).backward()
        assert x.grad.dtype == torch.float32
