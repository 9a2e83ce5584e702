# tests/device/on_cuda.py
"""Tensors on the CUDA device, a model for it, and what a call runs there."""

from __future__ import annotations

import torch


def randn(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def leaf(*sizes, dtype=torch.float32):
    return randn(*sizes, dtype=dtype).requires_grad_()


def convolutional():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 10),
    )


def kernels_of(call) -> list[str]:
    """The names of the kernels that a call runs on the device."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    return [e.name for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
