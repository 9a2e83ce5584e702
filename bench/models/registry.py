# bench/models/registry.py
"""A model's name, size and dtype -> a seeded module with example inputs.

One row a model. `test` sizes run in milliseconds and keep every kind of layer (two of each, so that
equal layers meet each other); `bench` sizes take 5-300 ms in eager on one core. Weights are random and
the same in every process: nothing is downloaded, and two processes can compare their outputs.

Freshly initialised networks are too tidy to find mistakes: biases are zero, norms are the identity and
batch norm's statistics are those of a standard normal, so dropping any of them changes nothing.
`_untidy` gives every constant parameter and every running statistic some noise.

Does not: train, or hold anything about backends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn

from . import diffusion_block, dlrm, hf, lstm_lm, mixer, unet

SEED = 20240
FLOAT32 = (torch.float32,)
BOTH = (torch.float32, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class Row:
    """One model of the benchmark and of the end-to-end tests."""

    name: str
    build: Callable[..., tuple[nn.Module, tuple, dict]]
    dtypes: tuple[torch.dtype, ...]
    test: dict
    bench: dict


@dataclasses.dataclass
class Case:
    """A module in eval mode and one call of it."""

    model: nn.Module
    args: tuple
    kwargs: dict

    def to(self, dtype: torch.dtype) -> Case:
        """This case with floating point weights and inputs in `dtype` (in place, like nn.Module.to)."""
        self.model.to(dtype)
        self.args = tuple(_cast(a, dtype) for a in self.args)
        self.kwargs = {k: _cast(v, dtype) for k, v in self.kwargs.items()}
        return self

    def with_other_inputs(self) -> Case:
        """This module called with other numbers of the same shapes; ids stay in range by moving along."""
        fresh = torch.Generator().manual_seed(SEED + 1)

        def other(value):
            if value.is_floating_point():
                return torch.randn(value.shape, generator=fresh).to(value.dtype)
            return value.roll(1, -1)

        return Case(self.model, tuple(map(other, self.args)), {k: other(v) for k, v in self.kwargs.items()})

    def __call__(self):
        with torch.no_grad():
            return self.model(*self.args, **self.kwargs)


# Text models take 2x128 tokens, image models one image, as is usual in serving.
MODELS = (
    Row("bert", hf.bert, BOTH,
        test=dict(hidden=32, layers=2, heads=4, tokens=12),
        bench=dict(hidden=256, layers=4, heads=4, tokens=128)),
    Row("distilbert", hf.distilbert, BOTH,
        test=dict(hidden=32, layers=2, heads=4, tokens=12),
        bench=dict(hidden=384, layers=4, heads=6, tokens=128)),
    Row("roberta", hf.roberta, BOTH,
        test=dict(hidden=32, layers=2, heads=4, tokens=12),
        bench=dict(hidden=256, layers=6, heads=4, tokens=128)),
    Row("gpt2", hf.gpt2, BOTH,
        test=dict(hidden=32, layers=2, heads=4, tokens=12),
        bench=dict(hidden=256, layers=4, heads=4, tokens=128)),
    Row("llama", hf.llama, BOTH,
        test=dict(hidden=32, layers=2, heads=4, kv_heads=2, tokens=12),
        bench=dict(hidden=256, layers=4, heads=8, kv_heads=4, tokens=128)),
    Row("qwen3", hf.qwen3, BOTH,
        test=dict(hidden=32, layers=2, heads=4, kv_heads=2, tokens=12),
        bench=dict(hidden=256, layers=4, heads=8, kv_heads=4, tokens=128)),
    Row("gemma3", hf.gemma3, BOTH,
        test=dict(hidden=32, layers=3, heads=4, kv_heads=2, tokens=12, window=8),
        bench=dict(hidden=256, layers=6, heads=4, kv_heads=2, tokens=128, window=64)),
    Row("t5", hf.t5, BOTH,
        test=dict(hidden=32, layers=2, heads=4, tokens=12),
        bench=dict(hidden=256, layers=3, heads=4, tokens=128)),
    Row("vit", hf.vit, BOTH,
        test=dict(hidden=32, layers=2, heads=4, image=32, patch=8),
        bench=dict(hidden=192, layers=6, heads=3, image=224, patch=16)),
    Row("swin", hf.swin, BOTH,
        test=dict(width=16, depths=(2, 2), heads=(2, 4), image=32, window=4),
        bench=dict(width=48, depths=(2, 2, 2, 2), heads=(2, 4, 8, 16), image=224, window=7)),
    Row("convnext", hf.convnext, BOTH,
        test=dict(widths=(16, 32), depths=(2, 2), image=32),
        bench=dict(widths=(96, 192, 384, 768), depths=(3, 3, 9, 3), image=224)),
    Row("resnet50", hf.resnet50, BOTH,
        test=dict(widths=(16, 32), depths=(2, 2), stem=8, image=32),
        bench=dict(widths=(256, 512, 1024, 2048), depths=(3, 4, 6, 3), stem=64, image=224)),
    Row("mobilenetv2", hf.mobilenetv2, BOTH,
        test=dict(width=0.35, image=32),
        bench=dict(width=1.0, image=224)),
    Row("segformer", hf.segformer, BOTH,
        test=dict(widths=(16, 32), heads=(1, 2), image=32),
        bench=dict(widths=(32, 64, 160, 256), heads=(1, 2, 5, 8), image=224)),
    Row("whisper", hf.whisper, BOTH,
        test=dict(hidden=32, layers=2, heads=4, frames=24),
        bench=dict(hidden=384, layers=4, heads=6, frames=300)),
    Row("clip", hf.clip, BOTH,
        test=dict(hidden=32, layers=2, heads=4, tokens=12, image=32, patch=8),
        bench=dict(hidden=256, layers=4, heads=4, tokens=64, image=224, patch=16)),
    Row("wav2vec2", hf.wav2vec2, BOTH,
        test=dict(hidden=32, layers=2, heads=4, conv=16, samples=1600),
        bench=dict(hidden=256, layers=4, heads=4, conv=256, samples=16000)),
    Row("mamba", hf.mamba, BOTH,
        test=dict(hidden=32, layers=2, tokens=6),
        bench=dict(hidden=256, layers=2, tokens=32)),
    Row("unet", unet.build, FLOAT32,
        test=dict(width=8, depth=2, image=16),
        bench=dict(width=32, depth=4, image=128)),
    Row("mlp_mixer", mixer.build, FLOAT32,
        test=dict(hidden=32, layers=2, image=32, patch=8),
        bench=dict(hidden=256, layers=8, image=224, patch=16)),
    Row("dlrm", dlrm.build, FLOAT32,
        test=dict(batch=4, rows=50, hidden=16),
        bench=dict(batch=2048, rows=50000, hidden=512)),
    Row("lstm_lm", lstm_lm.build, FLOAT32,
        test=dict(hidden=16, layers=2, vocab=50, tokens=6, batch=2),
        bench=dict(hidden=384, layers=2, vocab=8000, tokens=64, batch=4)),
    Row("diffusion_block", diffusion_block.build, FLOAT32,
        test=dict(width=16, groups=4, heads=2, context=12, image=8),
        bench=dict(width=160, groups=32, heads=5, context=256, image=32)),
)  # fmt: skip

NAMES = tuple(row.name for row in MODELS)


def find(name: str) -> Row:
    """The row called `name`."""
    for row in MODELS:
        if row.name == name:
            return row
    raise KeyError(f"no model called {name!r}; there are {', '.join(NAMES)}")


def build(name: str, size: str = "test", dtype: torch.dtype = torch.float32) -> Case:
    """The seeded model `name` at size "test" or "bench", in eval mode, with inputs, in `dtype`."""
    row = find(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model, args, kwargs = row.build(**getattr(row, size))
        _untidy(model, args, kwargs)
    return Case(model.eval().requires_grad_(False), args, kwargs).to(dtype)


def parse_dtype(name: str) -> torch.dtype:
    """torch's dtype called `name`."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}[name]


def _cast(value, dtype):
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if floating else value


@torch.no_grad()
def _untidy(model: nn.Module, args: tuple, kwargs: dict) -> None:
    for p in model.parameters():
        if p.is_floating_point() and p.numel() > 1 and bool((p == p.flatten()[0]).all()):
            p.add_(torch.randn_like(p), alpha=0.1)
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    # Statistics of what really arrives at each norm: with made-up ones, deep nets forget their input.
    for m in norms:
        m.momentum = 1.0
    batch = [_batch_like(a) for a in args]
    model.train()(*batch, **{k: _batch_like(v) for k, v in kwargs.items()})
    for m in norms:
        m.running_mean.add_(torch.randn_like(m.running_mean) * m.running_var.sqrt(), alpha=0.1)
        m.running_var.mul_(torch.rand_like(m.running_var) + 0.5)


def _batch_like(value):
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.randn(8, *value.shape[1:]) if floating else value
