# bench/micro/attention.py
# our attention kernels beside ATen's scaled_dot_product_attention, in one process, repetitions interleaved
"""Usage: python bench/micro/attention.py [--only TEXT] [--seconds S] [--threads N] [--dtype bfloat16]

The shapes are those of the benchmark's models. Both sides read heads out of projected rows and leave the
result as rows, as models have it; ours runs compiled by torchbolt, call and guards included.
"""

from __future__ import annotations

import argparse

import torch
from rounds import times

import torchbolt

SHAPES = [  # (where, batch, heads, queries, keys, depth, mask)
    ("bert", 2, 4, 128, 128, 64, None),
    ("distilbert", 2, 6, 128, 128, 64, None),
    ("gpt2", 2, 4, 128, 128, 64, "bool"),
    ("llama", 2, 8, 128, 128, 32, "bool"),
    ("t5 encoder", 2, 4, 128, 128, 64, "bias"),
    ("t5 cross", 2, 4, 64, 128, 64, "bias"),
    ("vit", 1, 3, 197, 197, 64, None),
    ("clip image", 2, 4, 197, 197, 64, None),
    ("clip text", 2, 4, 64, 64, 64, "bool"),
    ("swin 1", 64, 2, 49, 49, 24, "bias"),
    ("swin 4", 1, 16, 49, 49, 24, "bias"),
    ("segformer 1", 1, 1, 3136, 49, 32, None),
    ("segformer 3", 1, 5, 196, 49, 32, None),
    ("whisper", 1, 6, 300, 300, 64, None),
    ("wav2vec2", 1, 4, 49, 49, 64, None),
    ("diffusion self", 1, 5, 1024, 1024, 32, None),
    ("diffusion cross", 1, 5, 1024, 77, 32, None),
    ("long causal", 1, 4, 1024, 1024, 64, "causal"),
    ("long", 1, 2, 2048, 2048, 128, None),
    ("few queries", 2, 8, 4, 512, 64, None),
    ("8 queries", 2, 8, 8, 512, 64, None),
]


def attention(heads, causal):
    def run(q, k, v, mask=None):
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return out.transpose(1, 2).flatten(2)

    return run


def make(shape, dtype):
    _, batch, heads, queries, keys, depth, mask = shape
    inputs = [torch.randn(batch, n, heads * depth).to(dtype) for n in (queries, keys, keys)]
    if mask == "bool":
        inputs.append(torch.ones(batch, 1, queries, keys, dtype=torch.bool).tril())
    if mask == "bias":
        inputs.append(torch.randn(1, heads, queries, keys).to(dtype))
    return attention(heads, mask == "causal"), inputs


def bench(shape, seconds, dtype):
    name, batch, heads, queries, keys, depth, mask = shape
    f, inputs = make(shape, dtype)
    compiled = torchbolt.compile(f)
    ours, eager = times([lambda: compiled(*inputs), lambda: f(*inputs)], seconds)
    exact = f(*(t.double() if t.is_floating_point() else t for t in inputs))
    error, eager_error = ((r(*inputs) - exact).abs().max().item() for r in (compiled, f))
    flops = 4 * batch * heads * queries * keys * depth / (2 if mask == "causal" else 1)
    print(
        f"{name:16s} {ours * 1e6:9.1f} us {flops / ours * 1e-9:6.1f} GF  eager {eager * 1e6:9.1f} us "
        f"{eager / ours:5.2f}x  error {error / eager_error:5.2f} of eager's",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    for shape in SHAPES:
        if options.only in shape[0]:
            bench(shape, options.seconds, getattr(torch, options.dtype))


if __name__ == "__main__":
    main()
