# tests/device/test_cuda_layouts.py
"""Convolutions on CUDA are given images channels-last, forward and backward. Needs a CUDA device.

cuDNN turns images with their channels apart round by kernels of its own, there and back; in a compiled network there
are no more of them than in a model that its user has put channels-last (images of three channels may need one). What
the user sees lies as eager has it.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from on_cuda import kernels_of
from torch import nn

import torchbolt

TURNING = ("nchwtonhwc", "nhwctonchw")


class Block(nn.Module):
    """A bottleneck as ResNet-50 has them."""

    def __init__(self, width: int, inner: int, to: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.second = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.third, self.norm3 = nn.Conv2d(inner, to, 1, bias=False), nn.BatchNorm2d(to)
        self.around = None
        if stride != 1 or width != to:
            self.around = nn.Sequential(nn.Conv2d(width, to, 1, stride, bias=False), nn.BatchNorm2d(to))

    def forward(self, x):
        y = F.relu(self.norm1(self.first(x)))
        y = F.relu(self.norm2(self.second(y)))
        y = self.norm3(self.third(y))
        return F.relu(y + (x if self.around is None else self.around(x)))


def resnet(depths: tuple[int, ...], stem: int, classes: int, groups: int = 1) -> nn.Sequential:
    layers = [nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = stem
    for i, depth in enumerate(depths):
        inner = stem << i
        for k in range(depth):
            layers.append(Block(width, inner, 4 * inner, 2 if k == 0 and i > 0 else 1, groups))
            width = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def small(groups: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    model = resnet((2, 2), 64, 10, groups).cuda()
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    return model


def turning(names: list[str]) -> list[str]:
    return [n for n in names if any(t in n.lower() for t in TURNING)]


def in_channels_last(model, x, call):
    """The call in eager, of a copy of the model and of images that lie channels-last from the start."""
    other = copy.deepcopy(model).to(memory_format=torch.channels_last)
    images = x.to(memory_format=torch.channels_last)
    return lambda: call(other, images)


def check_turning(what: str, ours: list[str], eager: list[str], channels_last: list[str]) -> None:
    counts = [f"{len(names)}, {len(turning(names))} turn" for names in (ours, eager, channels_last)]
    print(f"{what}: kernels {counts[0]}; eager {counts[1]}; eager channels-last {counts[2]}")
    assert ours and len(turning(ours)) <= len(turning(channels_last)), turning(ours)


def error(a: torch.Tensor, exact: torch.Tensor) -> float:
    scale = exact.abs().max().item() or 1.0
    return (a.double() - exact.double()).abs().max().item() / scale


def check_near(got, eager, exact, floor: float, what: str) -> None:
    ours, theirs = error(got, exact), error(eager, exact)
    assert ours <= 2 * theirs + floor, f"{what}: {ours:.2e} from doubles where eager is {theirs:.2e}"
    assert got.stride() == eager.stride() and got.dtype == eager.dtype, f"{what}: {got.stride()}, {eager.stride()}"


FLOORS = {torch.float32: 1e-3, torch.bfloat16: 2e-2, torch.float16: 3e-3}  # TF32 is cuDNN's default


@pytest.mark.parametrize("dtype", FLOORS, ids=str)
@pytest.mark.parametrize("groups", [1, 4])
def test_inference_is_eagers(dtype, groups):
    model = small(groups).eval()
    x = torch.randn(8, 3, 64, 64, device="cuda")
    with torch.no_grad():
        exact = model.double()(x.double())
        model, x = model.to(dtype), x.to(dtype)
        eager, fn = model(x), torchbolt.compile(model)
        for _ in range(3):
            got = fn(x)
            check_near(got, eager, exact, FLOORS[dtype], "the result")


@pytest.mark.parametrize("dtype", FLOORS, ids=str)
def test_images_that_are_given_out_lie_as_eagers(dtype):
    model = small().eval().to(dtype)[:6]
    x = torch.randn(8, 3, 64, 64, device="cuda", dtype=dtype)
    with torch.no_grad():
        assert torchbolt.compile(model)(x).stride() == model(x).stride()
        last = x.to(memory_format=torch.channels_last)
        assert torchbolt.compile(model)(last).stride() == model(last).stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_inference_turns_nothing_round(dtype):
    model = small().eval().to(dtype)
    x = torch.randn(16, 3, 64, 64, device="cuda", dtype=dtype)
    compiled = torchbolt.compile(model)
    with torch.no_grad():
        names = kernels_of(lambda: compiled(x))
        theirs = kernels_of(lambda: model(x))
        least = kernels_of(in_channels_last(model, x, lambda net, images: net(images)))
    check_turning(str(dtype), names, theirs, least)


def gradients(step, model, x, y):
    model.zero_grad(set_to_none=True)
    step(x, y).backward()
    return {name: p.grad.clone(memory_format=torch.preserve_format) for name, p in model.named_parameters()}


def copy_of(model, dtype):
    other = small().to(dtype)
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("how", ["float32", "bfloat16", "autocast"])
def test_gradients_are_eagers(how):
    dtype = torch.bfloat16 if how == "bfloat16" else torch.float32
    model = small().to(dtype)
    x = torch.randn(8, 3, 64, 64, device="cuda", dtype=dtype)
    y = torch.arange(8, device="cuda") % 10

    def step_of(net):
        def step(x, y):
            with torch.autocast("cuda", torch.bfloat16, enabled=how == "autocast"):
                return F.cross_entropy(net(x).float() if how != "autocast" else net(x), y)

        return step

    exact_model = copy_of(model, torch.float64)
    exact = gradients(lambda x, y: F.cross_entropy(exact_model(x), y), exact_model, x.double(), y)
    eager_model = copy_of(model, dtype)
    eager = gradients(step_of(eager_model), eager_model, x, y)
    got = gradients(torchbolt.compile(step_of(model)), model, x, y)
    floor = 1e-2 if how == "float32" else 1e-1
    for name, gradient in got.items():
        check_near(gradient, eager[name], exact[name], floor, name)
    for (name, ours), theirs in zip(model.named_buffers(), eager_model.buffers(), strict=True):
        assert torch.allclose(ours.double(), theirs.double(), rtol=5e-2, atol=5e-2), name


@pytest.mark.parametrize("how", ["bfloat16", "autocast"])
def test_training_turns_nothing_round(how):
    dtype = torch.bfloat16 if how == "bfloat16" else torch.float32
    model = small().to(dtype)
    x = torch.randn(16, 3, 64, 64, device="cuda", dtype=dtype)
    y = torch.arange(16, device="cuda") % 10

    def loss(x, y):
        with torch.autocast("cuda", torch.bfloat16, enabled=how == "autocast"):
            return F.cross_entropy(model(x), y)

    compiled = torchbolt.compile(loss)

    def step(f):
        model.zero_grad(set_to_none=True)
        f(x, y).backward()

    names, theirs = kernels_of(lambda: step(compiled)), kernels_of(lambda: step(loss))

    def step_of(net, images):
        net.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=how == "autocast"):
            value = F.cross_entropy(net(images), y)
        value.backward()

    check_turning(how, names, theirs, kernels_of(in_channels_last(model, x, step_of)))


class Grouped(nn.Module):
    """A grouped convolution between two that are not, and one that halves the image."""

    def __init__(self, width: int, groups: int):
        super().__init__()
        c = width * groups
        self.first, self.norm1 = nn.Conv2d(16, c, 1, bias=False), nn.BatchNorm2d(c)
        self.second, self.norm2 = nn.Conv2d(c, c, 3, 1, 1, groups=groups), nn.BatchNorm2d(c)
        self.third = nn.Conv2d(c, 2 * c, 3, 2, 1, groups=groups, bias=False)
        self.last = nn.Conv2d(2 * c, 16, 1)

    def forward(self, x):
        x = F.relu(self.norm1(self.first(x)))
        return self.last(F.silu(self.third(F.relu(self.norm2(self.second(x))))))


@pytest.mark.parametrize("width", [2, 3, 4, 6, 8, 12, 24, 32, 48, 112, 160])
@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
def test_groups(width, training, capsys):
    torch.manual_seed(0)
    model = Grouped(width, 6 if width < 64 else 2).cuda().train(training)
    eager, exact = copy.deepcopy(model).bfloat16(), copy.deepcopy(model).double()
    model = model.bfloat16()
    x = torch.randn(4, 16, 20, 20, device="cuda", dtype=torch.bfloat16)

    def run(f, net, x):
        if not training:
            with torch.no_grad():
                return [f(x)]
        net.zero_grad(set_to_none=True)
        x = x.detach().requires_grad_()
        y = f(x)
        y.double().square().sum().backward()
        return [y.detach(), x.grad, *(p.grad for p in net.parameters())]

    compiled = torchbolt.compile(model)
    for _ in range(3):
        got = run(compiled, model, x)
        theirs, best = run(eager, eager, x), run(exact, exact, x.double())
        for i, (a, b, e) in enumerate(zip(got, theirs, best, strict=True)):
            check_near(a, b, e, 3e-2, f"{width}: {i}")
    names = kernels_of(lambda: run(compiled, model, x))
    with capsys.disabled():
        print(f"\n{width} channels a group, {'training' if training else 'forward'}: {len(turning(names))} kernels "
              f"of {len(names)} turn images")  # fmt: skip
    if 4 <= width <= 64:  # of small images with wider groups cuDNN takes kernels for planes now and then
        assert not turning(names)


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
def test_channels_that_give_two_are_convolved_at_once(training):
    """cuDNN launches a kernel for each such channel of images that lie channels-last."""
    model = nn.Sequential(nn.Conv2d(16, 64, 1), nn.Conv2d(64, 128, 7, 2, 3, groups=64), nn.Conv2d(128, 16, 1))
    model = model.cuda().bfloat16().train(training)
    x = torch.randn(4, 16, 20, 20, device="cuda", dtype=torch.bfloat16)

    def run(f):
        with torch.set_grad_enabled(training):
            y = f(x)
            return (y, *torch.autograd.grad(y.square().sum(), model.parameters())) if training else (y,)

    compiled = torchbolt.compile(model)
    for _ in range(3):
        got, want = run(compiled), run(model)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=5e-2, atol=3e-2 * b.abs().max().item())
    assert len(kernels_of(lambda: run(compiled))) < 64


def milliseconds(call) -> float:
    """The median of steps, each measured on the device."""
    for _ in range(5):
        call()
    times = []
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
def test_time_of_resnet50(training, capsys):
    torch.manual_seed(0)
    model = resnet((3, 4, 6, 3), 64, 1000).cuda().bfloat16().train(training)
    x = torch.randn(64, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    y = torch.arange(64, device="cuda")

    def loss(x, y):
        return F.cross_entropy(model(x).float(), y)

    def step(f):
        model.zero_grad(set_to_none=True)
        f(x, y).backward()

    def run(f):
        if training:
            return lambda: step(f)
        return lambda: f(x, y)

    with torch.set_grad_enabled(training):
        eager, ours = run(loss), run(torchbolt.compile(loss))
        times = [(milliseconds(eager), milliseconds(ours)) for _ in range(3)]
        names = kernels_of(ours)
    with capsys.disabled():
        of = torch.cuda.get_device_name()
        pairs = ", ".join(f"{b:.2f} ({a:.2f})" for a, b in times)
        print(f"\nResNet-50 64x3x224x224 bf16 {'training' if training else 'forward'}, {of}: ms (eager) {pairs}; "
              f"{len(names)} kernels, {len(turning(names))} of them turn images")  # fmt: skip
    assert len(turning(names)) < 5, turning(names)[:5]
    assert min(b for _, b in times) < min(a for a, _ in times), times
