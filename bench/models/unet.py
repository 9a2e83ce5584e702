# bench/models/unet.py
"""Sizes -> a U-Net (Ronneberger et al.): conv, batch norm, skips, upsampling."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class DoubleConv(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width, depth, classes=4):
        super().__init__()
        widths = [width * 2**i for i in range(depth)]
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(DoubleConv(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        skips.pop()
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = block(torch.cat([skips.pop(), x], dim=1))
        return self.head(x)


def build(width, depth, image):
    return UNet(width, depth), (torch.randn(1, 3, image, image),), {}
