# tests/autograd/test_steps_elsewhere.py
"""A step's tape whose tensors lie on a device that is not here: the backward pass is walked, and the rest of the road."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchbolt import _C

GRADIENTS = torch.ops.torchbolt.gradients.default
TYPE = re.compile(r"\b(f32|bf16|f16|f64|i64|i32|bool)\[[\d, ]*\](\{[\d, ]*\})?")


def recorded_step(autocast=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8))
    parameters = list(model.parameters())

    def step(x, y):
        with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss = F.cross_entropy(model(x), y)
        found = GRADIENTS([loss], [torch.ones_like(loss)], parameters, False, True)
        with torch.no_grad():
            for p, g in zip(parameters, found, strict=True):
                p.sub_(g, alpha=0.1)
        return loss.detach()

    return _C._record_tape(step, (torch.randn(4, 16), torch.arange(4)), parameters)


def moved(tape):
    """To cuda:0, numbers among the arguments too."""
    tape = TYPE.sub(lambda m: m.group(0) + " cuda:0", tape)
    return re.sub(r"device=cpu\b", "device=cuda:0", tape)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["plain", "bf16"])
def test_a_step_for_cuda_is_the_processors(autocast):
    tape = recorded_step(autocast)
    assert tape.count("torchbolt::gradients") == 1
    here, there = (_C._opt(text, ["--emit=graph", "-"])[0] for text in (tape, moved(tape)))
    assert "gradients" not in there and "cuda:0" in there
    operations = [re.findall(r" = (\w+)\(", text) for text in (here, there)]
    assert sorted(operations[0]) == sorted(operations[1])


def test_the_kernels_of_a_step_for_cuda():
    text = _C._opt(moved(recorded_step()), ["--passes=standard", "--emit=cuda", "-"])[0]
    assert "__global__" in text and "bolt_" in text
    plan = _C._opt(moved(recorded_step()), ["--passes=standard", "--emit=plan", "-"])[0]
    # Gradients die into the update: the loss is all that comes out.
    assert len(re.findall(r"= output \d+", plan)) == 1


def test_a_penalty_on_gradients_for_cuda_is_the_processors():
    """The first pass is walked with gradients followed, the second goes through what that made."""
    torch.manual_seed(0)
    judge = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 1))
    parameters = list(judge.parameters())

    def step(x, mixed):
        score = judge(mixed)
        (slope,) = torch.ops.torchbolt.followed_gradients([score], [torch.ones_like(score)], [mixed])
        loss = judge(x).mean() + (slope.norm(2, dim=1) - 1).square().mean()
        found = GRADIENTS([loss], [torch.ones_like(loss)], parameters, False, True)
        with torch.no_grad():
            for p, g in zip(parameters, found, strict=True):
                if g is not None:
                    p.sub_(g, alpha=0.1)
        return loss.detach()

    given = (torch.randn(4, 16), torch.randn(4, 16).requires_grad_())
    tape = _C._record_tape(step, given, parameters)
    assert tape.count("torchbolt::followed_gradients") == 1
    here, there = (_C._opt(text, ["--emit=graph", "-"])[0] for text in (tape, moved(tape)))
    assert "gradients" not in there and "cuda:0" in there
    operations = [re.findall(r" = (\w+)\(", text) for text in (here, there)]
    assert sorted(operations[0]) == sorted(operations[1])
    assert "__global__" in _C._opt(moved(tape), ["--passes=standard", "--emit=cuda", "-"])[0]


@pytest.mark.parametrize("dims", [(2, 3, 4, 5, 8), (3, 5, 8)], ids=["windows", "without heads"])
def test_attention_for_cuda_has_four_dimensions(dims):
    """There ATen has formulas of fused kernels for these alone. The processor's own kernels take any."""

    def step(q, k, v, mask):
        out = F.scaled_dot_product_attention(q, k, v, mask)
        return list(GRADIENTS([out], [torch.ones_like(out)], [q, k, v], False, True))

    operands = [nn.Parameter(torch.randn(dims)) for _ in range(3)]
    tape = _C._record_tape(step, (*operands, torch.randn(*dims[:-1], dims[-2])), operands)
    here, there = (_C._opt(text, ["--emit=graph", "-"])[0] for text in (tape, moved(tape)))
    joined = {5: "[6, 4, 5, 5]", 3: "[3, 1, 5, 5]"}[len(dims)]
    scores = {5: "[2, 3, 4, 5, 5]", 3: "[3, 5, 5]"}[len(dims)]
    assert f"f32{joined} cuda:0 = mul(" in there and f"f32{scores} cuda:0 = mul(" not in there
    assert f"f32{joined} = mul(" not in here


def test_attention_for_cuda_has_rows():
    """Of pixels whose channels are apart, ATen's fused kernels are given copies."""

    def step(*channels):
        q, k, v = (t.transpose(-1, -2) for t in channels)
        out = F.scaled_dot_product_attention(q, k, v)
        return list(GRADIENTS([out], [torch.ones_like(out)], list(channels), False, True))

    operands = [nn.Parameter(torch.randn(2, 3, 8, 16)) for _ in range(3)]
    tape = _C._record_tape(step, tuple(operands), operands)
    here, there = (_C._opt(text, ["--emit=graph", "-"])[0] for text in (tape, moved(tape)))
    assert "f32[2, 3, 16, 8]{384, 128, 1, 16} = mul(" in here
    assert "f32[2, 3, 16, 8] cuda:0 = mul(" in there
    assert "f32[2, 3, 16, 8]{384, 128, 1, 16} cuda:0 = mul(" not in there


class Branches(nn.Module):
    """As RepVGG and TextNet train: convolutions of several forms, each normalised, added up."""

    def __init__(self, width):
        super().__init__()
        forms = [(3, 3), (3, 1), (1, 3)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width, width, form, padding=(form[0] // 2, form[1] // 2), bias=False) for form in forms
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in forms)
        self.own = nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.own(x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            y = y + norm(convolution(x))
        return F.relu(y)


def test_branches_store_no_float_image():
    """What their gradients' kernels make of images in half precision, others make of these, too; and what is one number
    everywhere, as the gradient of a mean, is no image."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    model = nn.Sequential(first, nn.BatchNorm2d(16), nn.ReLU(), Branches(16), Branches(16))
    parameters = list(model.parameters())

    def step(x):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().mean()
        found = GRADIENTS([loss], [torch.ones_like(loss)], parameters, False, True)
        with torch.no_grad():
            for p, g in zip(parameters, found, strict=True):
                p.sub_(g, alpha=0.1)
        return loss.detach()

    tape = _C._record_tape(step, (torch.randn(4, 3, 64, 64),), parameters)
    plan = _C._opt(moved(tape), ["--passes=standard", "--apart=2097152", "--emit=plan", "-"])[0]
    assert "bf16[4, 16, 64, 64]" in plan
    assert not [line for line in plan.splitlines() if "f32[4, 16, 64, 64]" in line.replace("bf16", "")]
