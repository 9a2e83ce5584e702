# tests/device/test_cuda_peaks.py
"""How much memory inference has at its peak on CUDA. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from on_cuda import randn
from torch import nn

import torchbolt


def peak_of(call) -> int:
    """Bytes above what is there before, in a later call."""
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def check_near(got, eager, exact, what: str) -> None:
    def error(a):
        return (a.double() - exact).abs().max().item()

    assert got.stride() == eager.stride() and got.dtype == eager.dtype, what
    assert error(got) <= 2 * error(eager) + 1e-6, f"{what}: {error(got):.2e} where eager is {error(eager):.2e}"


@pytest.mark.parametrize("width", [256, 352])  # the latter's weights are multiplied by in parts where they are odd
@pytest.mark.parametrize("words", [50257, 50264])
@pytest.mark.parametrize("rows", [(2048,), (4, 517)], ids=str)
def test_logits_are_there_once(words, rows, width):
    """Their padded rows, which the library wants, are never all there beside them."""
    torch.manual_seed(0)
    head, h = nn.Linear(width, words, bias=False).cuda(), randn(*rows, width)
    labels = torch.randint(words, rows, device="cuda").flatten()

    def run(h):
        logits = head(h)
        return logits, F.cross_entropy(logits.flatten(0, -2).float(), labels)

    with torch.no_grad():
        head.double()
        exact = run(h.double())
        head, h = head.bfloat16(), h.bfloat16()
        eager, fn = run(h), torchbolt.compile(run)
        for _ in range(3):
            got = fn(h)
        for a, b, c, what in zip(got, eager, exact, ("logits", "loss"), strict=True):
            check_near(a, b, c, what)
        size = got[0].nbytes
        del got, eager, exact
        assert peak_of(lambda: fn(h)) <= 1.4 * size + (2 << 20)


def test_no_copy_of_a_large_head_is_kept():
    torch.manual_seed(0)
    head = nn.Linear(768, 50257, bias=False).bfloat16().cuda()
    fn, h = torchbolt.compile(head), randn(16, 768, dtype=torch.bfloat16)
    with torch.no_grad():
        want = head(h)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(4):
            torch.testing.assert_close(fn(h), want, rtol=2e-2, atol=1e-2)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() - before < 4 << 20


def as_trained(model) -> None:
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(0.5, 1.5)
    model.eval()


class Bottleneck(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.narrow, self.norm1 = nn.Conv2d(width, width // 4, 1, bias=False), nn.BatchNorm2d(width // 4)
        self.wide, self.norm2 = nn.Conv2d(width // 4, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(self.norm2(self.wide(F.relu(self.norm1(self.narrow(x))))) + x)


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_is_added_is_added_to(deterministic):
    """A block of single pixels writes its images over those that it was given."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 256, 1), *(Bottleneck(256) for _ in range(3)), nn.AdaptiveAvgPool2d(1)).cuda()
    as_trained(model)
    x = randn(32, 64, 56, 56)
    with torch.no_grad():
        exact = model.double()(x.double())
        model, x = model.bfloat16(), x.bfloat16()
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        try:
            eager, fn = model(x), torchbolt.compile(model)
            for _ in range(3):
                got = fn(x)
            check_near(got, eager, exact, "the result")
            images = 32 * 256 * 56 * 56 * 2
            if not deterministic:
                assert peak_of(lambda: fn(x)) <= 1.75 * images
        finally:
            torch.use_deterministic_algorithms(False)


class Wider(nn.Module):
    """A block that adds without an activation."""

    def __init__(self, width: int):
        super().__init__()
        self.wide, self.norm1 = nn.Conv2d(width, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width)
        self.narrow, self.norm2 = nn.Conv2d(2 * width, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return x + self.norm2(self.narrow(F.hardswish(self.norm1(self.wide(x)))))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("width", [24, 64])
def test_sums_are_the_librarys(width, mode):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, width, 3), *(Wider(width) for _ in range(3)), nn.Conv2d(width, 8, 3)).cuda()
    as_trained(model)
    x = randn(8, 3, 40, 40)
    with torch.no_grad():
        exact = model.double()(x.double())
        model, x = model.bfloat16(), x.bfloat16()
        eager, fn = model(x), torchbolt.compile(model, mode=mode)
        for _ in range(5):
            got = fn(x)
        check_near(got, eager, exact, "the result")
        # Of each block there is the kernel of its activation, and none for its sum.
        assert torchbolt.explain(model)(x).kernels <= 3 + 3


def test_an_image_that_is_read_again_is_not_written_over():
    torch.manual_seed(0)
    model = Bottleneck(256).bfloat16().cuda().eval()
    first = nn.Conv2d(256, 256, 1).bfloat16().cuda()

    def run(x):
        y = first(x)
        z = model(y)
        return z.float().mean(), y.float().square().mean(), F.relu(model.norm2(first(z)) + z).float().mean()

    fn, x = torchbolt.compile(run), randn(16, 256, 28, 28, dtype=torch.bfloat16)
    with torch.no_grad():
        want = run(x)
        for _ in range(4):
            for a, b in zip(fn(x), want, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
