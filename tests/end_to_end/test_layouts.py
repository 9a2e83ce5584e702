# tests/end_to_end/test_layouts.py
"""A change of layout is paid once or not made: convolutions of libraries beside generated ones, and their weights.

On the processor these are large, grouped or transposed convolutions; with TORCHBOLT_CHANNELS_LAST all of them are given
images as CUDA's are, so that training's layouts are tried without a GPU.
"""

from __future__ import annotations

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt
from torchbolt import plans

IMAGE = re.compile(r"^  (b\d+) = .*?: \w+\[(\d+, \d+, \d+, \d+)\](?:\{([\d, ]+)\})?", re.M)


@pytest.fixture(autouse=True)
def start():
    torch.manual_seed(0)
    torchbolt.reset()


def check(model: nn.Module, x: torch.Tensor) -> str:
    """The model's result is as near to doubles as eager's and lies as eager's; gives the plan's text."""
    model = model.eval()
    with torch.no_grad():
        eager, exact = model(x), copy.deepcopy(model).double()(x.double())
        compiled = torchbolt.compile(model)
        for _ in range(2):
            got = compiled(x)
            assert got.stride() == eager.stride()
            assert (got - exact).abs().max() <= 2 * (eager - exact).abs().max() + 1e-5 * exact.abs().max()
        (text,) = torchbolt.explain(model)(x).plans
    return text


def run_steps(text: str) -> list[str]:
    return [s.what for s in plans.parse(text).steps if not s.once]


def test_a_convolution_as_large_as_its_image_is_a_product():
    image = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    text = check(
        nn.Sequential(*image, nn.Conv2d(16, 64, 8), nn.ReLU(), nn.Conv2d(64, 10, 1)), torch.randn(2, 3, 16, 16)
    )
    steps = run_steps(text)
    assert sum("linear" in s for s in steps) == 2, steps


@pytest.mark.parametrize(("padding", "dilation"), [(0, 1), (1, 1), (0, 2), (1, 2), (2, 2)])
def test_a_window_that_meets_the_image_once(padding, dilation):
    size = 2 * dilation + 1 - 2 * padding
    x = torch.randn(3, 5, size, size)
    text = check(nn.Conv2d(5, 7, 3, padding=padding, dilation=dilation), x)
    assert any("linear" in s for s in run_steps(text)) and not any("conv" in s for s in run_steps(text))


def test_a_product_reads_weights_that_lie_channels_last():
    model = nn.Conv2d(6, 8, 4).to(memory_format=torch.channels_last)
    text = check(model, torch.randn(2, 6, 4, 4))
    assert any("linear" in s for s in run_steps(text))


def test_convolutions_of_a_library_between_generated_ones():
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(32, 32, 2, 2), nn.ReLU(), nn.Conv2d(32, 32, 3)
    )  # fmt: skip
    check(model, torch.randn(1, 3, 8, 8))


class Residual(nn.Module):
    def __init__(self, flat=True):
        super().__init__()
        self.flat = flat
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.a, self.norm_a = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 1)
        self.wide = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.stem(x))))
        y = self.b(F.relu(self.norm_a(self.a(x))))
        x = F.relu(x + y + self.wide(x))
        image = self.up(x)
        return self.head(image.flatten(2).mean(-1) if self.flat else image.mean((2, 3))), image


def gradients(step, model, x):
    model.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    scores, image = step(x)
    (scores.square().sum() + image.sin().sum()).backward()
    return [x.grad, *(p.grad for p in model.parameters())], image


@pytest.mark.parametrize("everywhere", ["0", "1"])
@pytest.mark.parametrize("shapes", [[(2, 3, 8, 8)], [(2, 3, 8, 8), (3, 3, 8, 8), (4, 3, 8, 8)]], ids=["one", "several"])
def test_training_whatever_the_images_layout(monkeypatch, everywhere, shapes):
    monkeypatch.setenv("TORCHBOLT_CHANNELS_LAST", everywhere)
    model, eager, exact = Residual(), Residual(), Residual().double()
    eager.load_state_dict(model.state_dict()), exact.load_state_dict(model.state_dict())
    compiled = torchbolt.compile(model)
    for shape in shapes:
        x = torch.randn(*shape)
        (got, image), (theirs, its) = gradients(compiled, model, x), gradients(eager, eager, x)
        best, _ = gradients(exact, exact, x.double())
        assert image.stride() == its.stride()
        for a, b, e in zip(got, theirs, best, strict=True):
            assert a.stride() == b.stride()
            assert (a - e).abs().max() <= 2 * (b - e).abs().max() + 1e-4 * max(1, e.abs().max())
    for a, b in zip(model.buffers(), eager.buffers(), strict=True):
        assert torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5)


def test_what_is_left_for_the_backward_pass_lies_as_convolutions_like_it(monkeypatch):
    monkeypatch.setenv("TORCHBOLT_CHANNELS_LAST", "1")
    seen = torchbolt.explain(Residual())(torch.randn(2, 3, 8, 8))
    text = "\n".join(seen.plans)
    left = [line for line in text.splitlines() if " = output " in line and ": f32[2, 8, " in line]
    assert left and all(", 1, " in line for line in left), "\n".join(left)


def lies_channels_last(sizes: list[int], strides: str) -> bool:
    wanted, run = [0] * len(sizes), 1
    for d in (1, *range(len(sizes) - 1, 1, -1), 0):
        wanted[d], run = run, run * sizes[d]
    if not strides:  # contiguous
        return sizes[1] == 1 or all(s == 1 for s in sizes[2:])
    return all(s == 1 or w == int(g) for s, w, g in zip(sizes, wanted, strides.split(","), strict=True))


def test_training_copies_nothing_between_convolutions(monkeypatch):
    """Forward and backward: what cuDNN would be given lies as it likes it, and only weights and the image are copied."""
    monkeypatch.setenv("TORCHBOLT_CHANNELS_LAST", "1")
    # What is seen flat between an image and its mean has its gradient in the flat order.
    seen = torchbolt.explain(Residual(flat=False))(torch.randn(2, 3, 8, 8))
    passes = 0  # with convolutions
    for text in "\n".join(seen.plans).split("\nplan ")[1:]:
        plan = plans.parse("plan " + text)
        types = {b: (list(map(int, n.split(","))), s) for b, n, s in IMAGE.findall(text)}
        inputs = {b.id for b in plan.buffers if b.what.startswith("input")}
        calls = [s for s in plan.steps if s.name in ("conv", "aten::convolution_backward")]
        passes += bool(calls)
        for step in calls:
            for buffer in step.inputs:
                assert buffer not in types or lies_channels_last(*types[buffer]), f"{buffer}: {types[buffer]} of {step}"
        made_by_casts = [s for s in plan.steps if s.name.startswith("cast_")]
        assert all(set(s.inputs) <= inputs for s in made_by_casts), made_by_casts
    assert passes == 2


@pytest.mark.parametrize("grad", [False, True])
def test_writes_into_strides_over_a_turned_tensor(grad):
    def fn(x):
        y = x.t() * 2  # lies as x does
        y.as_strided((3,), (5,), 1).mul_(3)
        y[1].add_(1)
        return y

    before = torchbolt.stats()["eager_fallbacks"]
    fast = torchbolt.compile(fn)
    for _ in range(2):
        x = torch.randn(4, 5, requires_grad=grad)
        got, want = fast(x), fn(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        if grad:
            tangent = torch.randn(5, 4)
            torch.testing.assert_close(torch.autograd.grad(got, x, tangent), torch.autograd.grad(want, x, tangent))
    assert torchbolt.stats()["eager_fallbacks"] == before
