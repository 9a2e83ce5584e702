# tests/training/leaves.py
"""A function with gradients and what it is given, and the check that all of it was compiled."""

import torch

import torchbolt


def leaf(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)


def compiled_whole(fn, regions=1):
    """A compiled function, and a check that all of it was compiled with its gradients."""

    def check():
        stats = torchbolt.stats()
        assert (stats["regions"], stats["eager_fallbacks"], stats["graph_breaks"]) == (regions, 0, 0)

    return torchbolt.compile(fn), check


def mlp(x, w, v):
    return torch.tanh(x @ w).pow(2) @ v


def operands(dtype=torch.float32):
    return leaf(4, 6, dtype=dtype), leaf(6, 5, dtype=dtype), leaf(5, 3, dtype=dtype)
