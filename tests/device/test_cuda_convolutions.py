# tests/device/test_cuda_convolutions.py
"""What a library's convolutions end in on CUDA, and convolutions of few channels. Needs a CUDA device.

A relu, the bias and what is added before it are the convolution's own, where nothing else reads the sums: no kernel
of ours follows. Pixels that a first convolution steps over are channels of its image. Results are as close to float32
as eager's.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt

HALVES = (torch.float16, torch.bfloat16)


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.float() - want).abs().max() / want.abs().max())


def check(model: nn.Module, *inputs: torch.Tensor, calls: int = 4, **options) -> None:
    """No further from float32 than twice eager's distance, in memory as eager has it."""
    torchbolt.reset()
    wide = copy.deepcopy(model).float()
    compiled = torchbolt.compile(model, **options)
    with torch.no_grad():
        want, eager = wide(*(x.float() for x in inputs)), model(*inputs)
        for _ in range(calls):
            got = compiled(*inputs)
        assert got.dtype == eager.dtype and got.stride() == eager.stride()
        assert distance(got, want) <= max(2 * distance(eager, want), 1e-3)


def kernels_of(model: nn.Module, *inputs: torch.Tensor) -> list[str]:
    compiled = torchbolt.compile(model)
    with torch.no_grad():
        for _ in range(4):
            compiled(*inputs)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            compiled(*inputs)
            torch.cuda.synchronize()
    return [e.name for e in profile.events() if e.name.startswith("bolt_")]


def image(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", generator=torch.Generator("cuda").manual_seed(1)).to(dtype)


class Sums(nn.Module):
    """Residual sums in the orders and with the biases that people write."""

    def __init__(self, groups: int = 1):
        super().__init__()
        self.first, self.norm = nn.Conv2d(16, 64, 3, padding=1, groups=groups), nn.BatchNorm2d(64)
        self.second = nn.Conv2d(64, 64, 1)
        self.around = nn.Conv2d(16, 64, 1)
        self.scale = nn.Parameter(torch.rand(64, 1, 1))

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        z = F.relu(self.around(x) + self.second(y))
        y = (self.second(z) + y).relu()
        y = torch.relu(z + self.second(y) + self.scale)
        kept = self.second(y)
        return F.relu(kept) * kept + F.relu(self.second(y[:, :, ::2]).repeat_interleave(2, 2) + z)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("groups", (1, 2))
def test_sums_that_end_in_a_relu(dtype, groups):
    torch.manual_seed(0)
    model = Sums(groups).cuda().eval().to(dtype)
    check(model, image(dtype, 4, 16, 14, 10))
    check(model, image(dtype, 4, 16, 14, 10), mode="reduce-overhead", calls=8)
    check(model, image(dtype, 4, 16, 14, 10).to(memory_format=torch.channels_last))


def test_sums_in_one_order(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch.manual_seed(0)
    check(Sums().cuda().eval().half(), image(torch.float16, 4, 16, 14, 10))


def test_no_kernel_follows():
    torch.manual_seed(0)
    first, second = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 16, 3, padding=1)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU()).cuda().eval().bfloat16()
    x = image(torch.bfloat16, 4, 16, 14, 10).to(memory_format=torch.channels_last)
    assert kernels_of(model, x) == []


def test_rounded_as_in_eager():
    """The sums are rounded before the relu, which changes nothing, and before what is added, which does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()).cuda().eval().half()
    compiled = torchbolt.compile(model, options={"numerics": "eager"})
    x = image(torch.float16, 4, 16, 14, 10).to(memory_format=torch.channels_last)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=1e-3)


STEMS = {
    "resnet": ((3, 64, 7, 2, 3), (2, 3, 64, 48)),
    "odd": ((3, 16, 7, 2, 3), (2, 3, 63, 45)),
    "small": ((3, 32, 3, 2, 1), (2, 3, 33, 32)),
    "segformer": ((3, 32, 7, 4, 3), (2, 3, 64, 62)),
    "unread pixels": ((2, 8, 5, 3, 0), (2, 2, 31, 30)),
    "one direction": ((4, 8, (3, 5), (1, 2), (1, 2)), (2, 4, 17, 19)),
    "as in patches": ((3, 16, 4, 4, 2), (2, 3, 32, 32)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", STEMS)
def test_steps_of_few_channels(dtype, name):
    conv, sizes = STEMS[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(*conv, bias=False), nn.BatchNorm2d(conv[1]), nn.ReLU()).cuda().eval().to(dtype)
    check(model, image(dtype, *sizes))


def test_batches_that_differ():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU()).cuda().eval().half()
    compiled = torchbolt.compile(model, dynamic=True)
    wide = copy.deepcopy(model).float()
    with torch.no_grad():
        for batch, size in ((2, 32), (3, 32), (5, 40), (2, 33), (1, 32)):
            x = image(torch.float16, batch, 3, size, size)
            got, want = compiled(x), wide(x.float())
            assert distance(got, want) <= max(2 * distance(model(x), want), 1e-3)


@pytest.mark.parametrize("dtype", HALVES)
def test_training(dtype):
    """Forward and backward: the library's gradients are of the convolution as it was written."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.ReLU())
    model = nn.Sequential(*layers).cuda()
    eager, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = torchbolt.compile(model)
    x = image(torch.float32, 4, 3, 32, 32)
    for _ in range(3):
        for each, call in ((model, compiled), (eager, eager), (wide, wide)):
            each.zero_grad()
            with torch.autocast("cuda", dtype, enabled=each is not wide):
                out = call(x.double() if each is wide else x)
            out.double().square().sum().backward()  # a mean's gradients would be too small for halves
    for got, plain, want in zip(model.parameters(), eager.parameters(), wide.parameters()):
        # Of all elements: the largest of a few thousand errors is another one with each order of summation. A few
        # roundings of a half are no difference: the library adds up channels-last images in other parts.
        far, allowed = ((p.grad.double() - want.grad).norm() / want.grad.norm() for p in (got, plain))
        assert far <= max(2 * allowed, 4 * torch.finfo(dtype).eps)
