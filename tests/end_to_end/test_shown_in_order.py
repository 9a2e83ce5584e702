"""What is shown waits for the region's end, unless other code that shows something, or is told of it, would come first."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch

import torchbolt


@torch.library.custom_op("shown::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    print("in the operator")
    return x.clone()


@noisy.register_fake
def _(x):
    return torch.empty_like(x)


def operators(x):
    print("before")
    x = noisy(x)
    print("between")
    x = noisy(x * 2)
    print("after")
    return x


def operator_first(x):
    x = noisy(x) * 2
    print("after")
    return x


def outcome(function, x):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        result = function(x)
    return str(result), out.getvalue()


@pytest.mark.parametrize(
    "function, regions",
    [
        (operators, 3),
        (operator_first, 1),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_in_the_order_of_the_program(function, regions):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for _ in range(4):
        x = torch.randn(3)
        assert outcome(compiled, x) == outcome(function, x)
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0
    assert stats["regions"] == regions
