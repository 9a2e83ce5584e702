# bench/models/diffusion_block.py
"""Sizes -> one level of a diffusion UNet.

A residual block with group norm, SiLU and a time embedding, then a transformer block with self attention,
cross attention over a text context, a gated (GEGLU) feed-forward: where image generators spend their time.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


def time_embedding(t, width):
    """Sinusoids of the time step, half sines and half cosines."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, device=t.device) * (-math.log(10000.0) / half))
    angles = t[:, None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class ResidualBlock(nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, width), nn.GroupNorm(groups, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(width, 2 * width)

    def forward(self, x, emb):
        scale, shift = self.time(F.silu(emb))[:, :, None, None].chunk(2, dim=1)
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.norm2(h) * (1 + scale) + shift
        return x + self.conv2(F.silu(h))


class Attention(nn.Module):
    def __init__(self, width, context, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(context, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x, context):
        def split(t):
            return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        k, v = self.kv(context).chunk(2, dim=-1)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(k), split(v))
        return self.out(y.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    def __init__(self, width, context, heads, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.self_attention = Attention(width, width, heads)
        self.cross_attention = Attention(width, context, heads)
        self.gate, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, context):
        n, c, h, w = x.shape
        y = self.norm(x).flatten(2).transpose(1, 2)
        z = self.norm1(y)
        y = y + self.self_attention(z, z)
        y = y + self.cross_attention(self.norm2(y), context)
        a, b = self.gate(self.norm3(y)).chunk(2, dim=-1)
        y = y + self.down(a * F.gelu(b))
        return x + y.transpose(1, 2).reshape(n, c, h, w)


class DiffusionBlock(nn.Module):
    def __init__(self, width, groups, heads, context):
        super().__init__()
        self.width = width
        self.embed = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.residual = ResidualBlock(width, groups)
        self.transformer = TransformerBlock(width, context, heads, groups)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)

    def forward(self, x, t, context):
        emb = self.embed(time_embedding(t, self.width).to(x.dtype))
        x = self.transformer(self.residual(x, emb), context)
        return self.down(x), x


def build(width, groups, heads, context, image):
    inputs = torch.randn(1, width, image, image), torch.tensor([37]), torch.randn(1, 77, context)
    return DiffusionBlock(width, groups, heads, context), inputs, {}
