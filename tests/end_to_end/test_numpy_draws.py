# tests/end_to_end/test_numpy_draws.py
"""A function that computes with numpy's random numbers, and with nothing of torch's, runs as a whole between two regions."""

import numpy as np
import pytest
import torch

import torchbolt


@pytest.fixture(autouse=True)
def start():
    torchbolt.reset()


def spans(shape, share, length=2, padding=None):
    """Masks of speech, as models of it draw them: many steps, none of which is torch's."""
    rows, columns = shape
    most = int(share * columns / length + np.random.rand(1).item())
    ends = padding.sum(-1).tolist() if padding is not None else [columns] * rows
    mask = np.zeros((rows, columns), dtype=bool)
    for row, end in enumerate(ends):
        begins = np.random.choice(np.arange(int(end) - length + 1), max(most, 1), replace=False)
        within = np.concatenate([begins + k for k in range(length)])
        mask[row, within] = True
    return mask


def masked(x, w, token, padding=None):
    h = x @ w
    mask = torch.tensor(spans(h.shape[:2], 0.5, padding=padding), dtype=torch.bool)
    h[mask] = token
    return (h * h).mean()


@pytest.mark.parametrize("padded", [False, True])
def test_masks_of_speech(padded):
    def losses(fn):
        torch.manual_seed(0)
        np.random.seed(0)
        for _ in range(4):
            x, w, token = (
                torch.randn(2, 10, 3),
                torch.randn(3, 4, requires_grad=True),
                torch.randn(4, requires_grad=True),
            )
            padding = torch.ones(2, 10) if padded else None
            loss = fn(x, w, token, padding)
            yield loss.detach(), *torch.autograd.grad(loss, (w, token))

    torch.testing.assert_close(list(losses(torchbolt.compile(masked))), list(losses(masked)))
    stats = torchbolt.stats()
    assert stats["regions"] <= 3 and stats["eager_fallbacks"] == 0, stats


def test_what_is_given_something_to_call_is_looked_into():
    def applied(f, x):
        return f(x) * np.random.randint(1, 2)

    def fn(x, w):
        return applied(lambda t: (t @ w).tanh(), x)

    fast = torchbolt.compile(fn)
    for _ in range(3):
        x, w = torch.randn(3, 4), torch.randn(4, 4)
        torch.testing.assert_close(fast(x, w), fn(x, w))
    assert torchbolt.stats()["regions"] == 2
