# tests/programs/test_attention_programs.py
"""Attention: scaled_dot_product_attention and the choice of its kernel, flex_attention called uncompiled."""

import pytest
import torch
import torch._dynamo  # flex_attention's first call would import it
from rows import Rows, randn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention import flex_attention as flex_module
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

import torchbolt

ROWS = Rows()
QKV = dict(q=randn(2, 4, 6, 8), k=randn(2, 4, 6, 8, seed=1), v=randn(2, 4, 6, 8, seed=2))

for text in (
    "F.scaled_dot_product_attention(q, k, v)",
    "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "F.scaled_dot_product_attention(q, k, v, scale=0.5)",
    "F.scaled_dot_product_attention(q, k, v, torch.ones(6, 6).tril().bool())",
    "F.scaled_dot_product_attention(q, k, v, attn_mask=q.new_zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9))",
    "F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)",
    "F.scaled_dot_product_attention(q, k[:, :2], v, enable_gqa=True)",
    "F.scaled_dot_product_attention(q, k, v[:, :2], enable_gqa=True)",
    "F.scaled_dot_product_attention(q[:1], k, v, enable_gqa=True)",
    "F.scaled_dot_product_attention(q[:1], k[:1], v)",
    "F.scaled_dot_product_attention(q[0], k[0], v[0])",
    "F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)",
    "(q @ k.mT / 8**0.5).softmax(-1) @ v",
    "(q @ k.mT / 8**0.5).masked_fill(torch.ones(6, 6).triu(1).bool(), float('-inf')).softmax(-1) @ v",
    "torch.baddbmm(q.new_zeros(8, 6, 6), q.flatten(0, 1), k.flatten(0, 1).mT).softmax(-1).view(2, 4, 6, 6) @ v",
    "torch.einsum('bhqk,bhkd->bhqd', torch.einsum('bhqd,bhkd->bhqk', q, k).softmax(-1), v)",
):
    ROWS.text(text, near=1e-4, **QKV)


def of_qkv(**facts):
    return lambda fn: ROWS.add(fn.__name__, lambda: fn, tuple(QKV.values()), {"near": 1e-4, **facts})


@of_qkv()
def the_math_kernel(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


@of_qkv()
def one_of_two_kernels(q, k, v):
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@of_qkv()
def a_kernel_for_some_of_the_work(q, k, v):
    x = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    with sdpa_kernel(SDPBackend.MATH):
        y = torch.nn.functional.scaled_dot_product_attention(x, k, v)
    return x + y


@ROWS.made(randn(2, 6, 8))
def multihead_attention():
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    return lambda x: attention(x, x, x)


@ROWS.made(randn(2, 6, 8))
def multihead_attention_with_masks():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    causal = torch.ones(6, 6).triu(1).bool()

    def run(x):
        padding = torch.zeros(2, 6, dtype=torch.bool)
        padding[1, 4:] = True
        return attention(x, x, x, key_padding_mask=padding, attn_mask=causal, need_weights=False)[0]

    return run


@ROWS.made(randn(6, 2, 8), randn(5, 2, 8, seed=1))
def cross_attention():
    attention = nn.MultiheadAttention(8, 2, kdim=8, vdim=8)
    return lambda x, y: attention(x, y, y, average_attn_weights=False)


# -- flex_attention: a mode of its own stands behind it, which a region cannot end before -----------------------------
# Eager compiles it by itself; this keeps torch.compile out of it.
flex_module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
FLEX = dict(ends="torch._C._push_on_torch_function_stack", regions=2)


# -------------------------------------------------------------------------------------------------
def scores(mod=None, mask=None):
    def like(q, k, v):
        s = q @ k.mT / q.shape[-1] ** 0.5
        b, h, m, n = torch.meshgrid(*(torch.arange(n) for n in s.shape), indexing="ij")
        s = s if mod is None else mod(s, b, h, m, n)
        s = s if mask is None else s.masked_fill(~mask(b, h, m, n), float("-inf"))
        return s.softmax(-1) @ v

    return like


def distance(score, b, h, q_idx, kv_idx):
    return score + (kv_idx - q_idx)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


@of_qkv(**FLEX, like=scores())
def flex(q, k, v):
    return flex_attention(q, k, v)


@of_qkv(**FLEX, like=scores(distance))
def flex_with_a_score(q, k, v):
    return flex_attention(q, k, v, score_mod=distance)


@of_qkv(**FLEX, like=scores(lambda s, b, h, m, n: torch.where(m >= n, s, float("-inf"))))
def flex_with_a_causal_score(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: torch.where(m >= n, s, float("-inf")))


@of_qkv(**FLEX, like=scores(lambda s, b, h, m, n: s * (0.5 ** (h + 1.0))))
def flex_with_a_score_by_head(q, k, v):
    slopes = 0.5 ** torch.arange(1, 5)
    return flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: s * slopes[h])


@of_qkv(**FLEX | dict(regions=3), like=scores(mask=causal))
def flex_with_a_block_mask(q, k, v):
    return flex_attention(q, k, v, block_mask=create_block_mask(causal, None, None, 6, 6, device="cpu"))


@of_qkv(**FLEX | dict(regions=1), like=lambda q, k, v: torch.ones(6, 6).tril().bool().expand(1, 1, 6, 6).clone())
def flex_mask(q, k, v):
    return create_mask(causal, 1, 1, 6, 6, device="cpu")


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_attention_programs(row):
    row.check()


def test_attention_without_weights():
    """The fast path gives no tensor for the weights that nobody asked for."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def fn(x):
        y = x * 2
        return attention(y, y, y, need_weights=False)[0] + 1

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for length in (5, 5, 6, 7):
            x = torch.randn(2, length, 8)
            torch.testing.assert_close(compiled(x), fn(x))
    assert torchbolt.stats()["eager_fallbacks"] == 0
