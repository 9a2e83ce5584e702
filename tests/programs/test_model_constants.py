# tests/programs/test_model_constants.py
"""Models that read their own constants in the ways of published code, and printed ATen graphs: no read ends a region."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt

aten = torch.ops.aten


class Printed(nn.Module):
    """As exporters print it: overloads looked up by name, sizes asked through torch.ops, checks of sizes."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8))
        self.b = nn.Parameter(torch.randn(8))
        self.register_buffer("c", torch.tensor(3))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("var", torch.ones(8))

    def forward(self, x):
        size = aten.sym_size.int(x, 0)
        torch._check_is_size(size)
        torch._check(size >= 0)
        aten._assert_scalar.default(size >= 0, "negative")
        x = x + aten.sym_stride.int(x, 0) + aten.sym_numel.default(x) + aten.sym_storage_offset.default(x)
        y = aten.native_layer_norm.default(x, [8], self.b, self.b, 1e-05)
        y = aten.addmm.default(self.b, operator.getitem(y, 0), aten.t.default(self.w))
        y = aten._native_batch_norm_legit_no_training.default(y, self.b, self.b, self.mean, self.var, 0.1, 1e-05)[0]
        y = aten.view.default(y, [size, 2, 4])
        var, mean = aten.var_mean.correction(y, [2], correction=0, keepdim=True)
        y = aten.mul.Tensor(aten.sub.Tensor(y, mean), aten.rsqrt.default(aten.add.Tensor(var, 1e-05)))
        y = aten.native_group_norm.default(aten.view.default(y, [size, 8, 1]), None, None, size, 8, 1, 2, 1e-05)[0]
        y = getattr(torch.ops.aten, "relu").default(y)  # noqa: B009
        y = torch.sym_max(2, 3) * y + torch.sym_int(2.5) + torch.sym_float(size)
        if torch.sym_not(size < 0):
            y = y + 1
        y = aten._to_copy.default(aten.slice.Tensor(y, 0, 0, 9223372036854775807), dtype=torch.float64)
        part = operator.getitem(aten.split.Tensor(aten.scalar_tensor.default(2.0) * y, 4, 1), 0)
        full = aten.full.default([size, 4, 1], 0.5, dtype=torch.float32, device=torch.device("cpu"), pin_memory=False)
        steps = aten.arange.start_step(0, 4, 1, dtype=torch.int64, device="cpu")
        return part + full + aten.unsqueeze.default(steps, 1) + aten.lift_fresh_copy.default(self.c)


class Attention(nn.Module):
    """A layer of a graph attention network."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.slope = nn.Parameter(torch.tensor(0.2))
        self.register_buffer("heads", torch.tensor(2))
        self.register_buffer("temperature", torch.tensor([2.0]))

    def forward(self, x):
        heads = int(self.heads)
        h = self.linear(x).view(-1, heads, 8 // heads)
        edges = F.leaky_relu(torch.einsum("ihd,jhd->hij", h, h) / self.temperature.item(), self.slope.item())
        if self.heads.item() > 1:
            edges = edges.masked_fill(edges > 3, float("-inf"))
        if self.slope > 0:
            edges = edges * 2.0
        return torch.einsum("hij,jhd->ihd", edges.softmax(-1), h).flatten(1)


class Encoder(nn.Module):
    """A RoBERTa with its epsilon in a buffer."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(8) for _ in range(4)])
        self.linears = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.register_buffer("eps", torch.tensor(1e-12))
        self.register_buffer("pad", torch.tensor(1))

    def forward(self, x):
        for norm, linear in zip(self.norms, self.linears):
            x = F.layer_norm(x, (8,), norm.weight, norm.bias, float(self.eps))
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps.item())
            x = F.layer_norm(F.gelu(linear(x)), (8,), norm.weight, norm.bias, self.eps)
        return x * x.ne(self.pad.item())


class Detector(nn.Module):
    """Anchors and strides in buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("anchors", torch.arange(12.0).view(2, 3, 2) + 1)
        self.register_buffer("strides", torch.tensor([8, 16]))
        self.register_buffer("classes", torch.tensor(4))
        self.convs = nn.ModuleList([nn.Conv2d(3, 9 * 3, 1) for _ in range(2)])

    def forward(self, x):
        out = []
        for i, level in enumerate((x, x[..., ::2, ::2])):
            outputs = int(self.classes) + 5
            ny, nx = level.shape[-2:]
            y = self.convs[i](level).view(1, self.anchors.shape[1], outputs, ny, nx).permute(0, 1, 3, 4, 2)
            gy, gx = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing="ij")
            xy = (y[..., :2].sigmoid() * 2 - 0.5 + torch.stack((gx, gy), 2)) * self.strides[i].item()
            wide = torch.tensor([float(a) for a in self.anchors[i, :, 0]]).view(1, -1, 1, 1, 1)
            for w, h in self.anchors[i].tolist():
                xy = xy + w * h
            for k in range(self.classes):
                xy = xy + k
            out.append(torch.cat((xy, y[..., 2:4] * wide, y[..., 4:]), -1).view(1, -1, outputs))
        return torch.cat(out, 1)


MODELS = [(Printed, (3, 8)), (Attention, (5, 8)), (Encoder, (3, 8)), (Detector, (1, 3, 8, 8))]


@pytest.mark.parametrize("make, shape", MODELS, ids=[make.__name__ for make, _ in MODELS])
def test_constants_of_the_model_end_no_region(make, shape):
    torchbolt.reset()
    before = torchbolt.stats()
    model, x = make().eval(), torch.randn(*shape)
    compiled = torchbolt.compile(model)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    now = torchbolt.stats()
    assert now["graph_breaks"] == before["graph_breaks"], now["break_reasons"]
    assert now["recordings"] == before["recordings"] + 1
