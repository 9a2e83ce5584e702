# tests/training/test_trained_masks.py
"""Masks that hide nothing, or what lies ahead, are none where gradients are needed, as without them."""

import pytest
import torch
import torch.nn.functional as F

import torchbolt


def everything(q, k, v):
    at = torch.arange(q.shape[2])
    mask = (at >= 0)[None, None, None, :].expand(len(q), 1, q.shape[2], q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def what_lies_behind(q, k, v):
    at = torch.arange(q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=at[None, :] <= at[:, None])


def only_near(q, k, v):
    at = torch.arange(q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(at[None, :] - at[:, None]).abs() < 5)


def written(q, k, v):
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool)
    mask[0, 1] = False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(
    ("fn", "folded"),
    [(everything, "attn_mask=None"), (what_lies_behind, "0.0, true"), (only_near, None), (written, None)],
)
def test_masks(fn, folded, tmp_path):
    def run(q, k, v):
        return fn(q * 2, k, v).transpose(1, 2).reshape(2, 24, -1).sin()

    torch.manual_seed(0)
    torchbolt.reset()
    compiled = torchbolt.compile(run, options={"trace.enabled": True, "trace.debug_dir": str(tmp_path)})
    for _ in range(2):
        at = [torch.randn(2, 4, 24, 16, requires_grad=True) for _ in range(3)]
        want = torch.autograd.grad(run(*at).sum(), at)
        torch.testing.assert_close(torch.autograd.grad(compiled(*at).sum(), at), want)
    (joint,) = tmp_path.rglob("1_joint.txt")
    (line,) = [text for text in joint.read_text().splitlines() if "flash_attention_for_cpu(" in text]
    assert (folded or "attn_mask=%") in line
