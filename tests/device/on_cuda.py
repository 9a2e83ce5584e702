# tests/device/on_cuda.py
"""Tensors on the CUDA device."""

from __future__ import annotations

import torch


def randn(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def leaf(*sizes, dtype=torch.float32):
    return randn(*sizes, dtype=dtype).requires_grad_()
