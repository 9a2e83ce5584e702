# bench/models/mixer.py
"""Sizes -> an MLP-Mixer (Tolstikhin et al.): linears over tokens, over channels."""

from __future__ import annotations

import torch
from torch import nn


def mlp(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class MixerBlock(nn.Module):
    def __init__(self, tokens, hidden):
        super().__init__()
        self.norm_tokens, self.norm_channels = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.tokens, self.channels = mlp(tokens, hidden // 2), mlp(hidden, hidden * 4)

    def forward(self, x):
        x = x + self.tokens(self.norm_tokens(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm_channels(x))


class MlpMixer(nn.Module):
    def __init__(self, hidden, layers, image, patch, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, stride=patch)
        self.blocks = nn.Sequential(*(MixerBlock((image // patch) ** 2, hidden) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def build(hidden, layers, image, patch):
    return MlpMixer(hidden, layers, image, patch), (torch.randn(1, 3, image, image),), {}
