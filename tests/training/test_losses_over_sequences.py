# tests/training/test_losses_over_sequences.py
"""Connectionist temporal classification: ATen reads lengths and labels out of tensors, so its call is a piece of the region
that eager differentiates, and the model around it is compiled."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 12))

    def forward(self, sound, labels, lengths, label_lengths):
        logits = self.body(sound)
        scores = logits.log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(scores, labels, lengths, label_lengths, zero_infinity=True) * 2, logits


def batch(size, length):
    labels = torch.randint(1, 12, (size, 5))
    return torch.randn(size, length, 8), labels, torch.full((size,), length), torch.randint(2, 6, (size,))


def as_lists(sound, labels, lengths, label_lengths):
    return sound, labels, lengths.tolist(), label_lengths.tolist()


@pytest.mark.parametrize("sizes", [[(3, 20)] * 4, [(3, 20), (4, 20), (3, 23), (5, 25)]], ids=["fixed", "differ"])
@pytest.mark.parametrize("lengths", [lambda *args: args, as_lists], ids=["tensors", "lists"])
def test_gradients(sizes, lengths):
    model = Speech()
    fast = torchbolt.compile(model)
    for size in sizes:
        args = lengths(*batch(*size))
        seen = []
        for each in (model, fast):
            model.zero_grad()
            loss, logits = each(*args)
            (loss + logits.mean()).backward()
            seen.append([loss.detach(), logits.detach(), *[p.grad.clone() for p in model.parameters()]])
        torch.testing.assert_close(seen[1], seen[0])
    stats = torchbolt.stats()
    assert (stats["eager_fallbacks"], stats["graph_breaks"]) == (0, 0)


def test_the_model_is_compiled():
    told = str(torchbolt.explain(Speech())(*batch(3, 20)))
    assert "library linear" in told and "Runs eagerly" not in told
