# tests/training/test_losses_over_sequences.py
"""Connectionist temporal classification: ATen reads lengths and labels out of tensors, so its kernels are one call of the
region, which gives the losses and their slopes."""

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


REDUCTIONS = ["mean", "sum", "none"]


def trained(loss_of, wrap):
    torch.manual_seed(1)
    model = Speech().body
    opt = torch.optim.SGD(model.parameters(), 0.01)

    @wrap
    def step(sound, *rest):
        opt.zero_grad()
        loss = loss_of(model(sound).log_softmax(-1).transpose(0, 1), *rest)
        loss.backward()
        opt.step()
        return loss.detach()

    losses = [step(*args) for args in given(5)]
    return losses, [t.detach().clone() for p in model.parameters() for t in (p, p.grad)]


def given(n):
    torch.manual_seed(2)
    for i in range(n):
        sound, labels, lengths, label_lengths = batch(4, 12)
        labels[0, :3] = 5  # which 4 steps are too few for, since equal labels need a blank between them
        lengths[0], label_lengths[0] = (4 if i % 2 else 5), 3
        yield sound, labels, lengths, label_lengths


def assert_trains_alike(loss_of, regions=2):
    eager = trained(loss_of, lambda step: step)
    torchbolt.reset()
    torch.testing.assert_close(trained(loss_of, torchbolt.compile), eager, equal_nan=True)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"], stats["regions"]) == (0, 0, regions)


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_step_is_one_region(reduction, zero_infinity):
    def loss_of(scores, labels, lengths, label_lengths):
        loss = F.ctc_loss(scores, labels, lengths, label_lengths, reduction=reduction, zero_infinity=zero_infinity)
        return (loss * torch.arange(1.0, loss.numel() + 1)).mean() if reduction == "none" else loss / len(labels)

    assert_trains_alike(loss_of)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_lengths_that_are_numbers(reduction):
    criterion = torch.nn.CTCLoss(blank=3, reduction=reduction)
    assert_trains_alike(lambda scores, labels, *_: criterion(scores, labels % 3, (12, 11, 12, 9), (5, 4, 3, 2)).sum())


def test_labels_one_after_another_and_a_single_sequence():
    def loss_of(scores, labels, lengths, label_lengths):
        joined = F.ctc_loss(scores, labels.flatten()[:14], lengths, torch.tensor([4, 2, 3, 5]))
        return joined + F.ctc_loss(scores[:, 1], labels[1, :4], torch.tensor(12), torch.tensor(4), reduction="none")

    assert_trains_alike(loss_of)


def test_what_comes_with_a_factor_for_each_sequence():
    def loss_of(scores, labels, lengths, label_lengths):
        losses = F.ctc_loss(scores, labels, lengths, label_lengths, reduction="none", zero_infinity=True)
        return (1 - torch.exp(-losses)).square().mul(losses).mean()  # focal

    assert_trains_alike(loss_of)


def test_a_gradient_that_is_differentiated_is_eagers():
    scores = torch.randn(8, 2, 5).log_softmax(-1).requires_grad_()
    labels, lengths = torch.randint(1, 5, (2, 3)), torch.full((2,), 8)

    @torchbolt.compile
    def penalty(scores):
        loss = F.ctc_loss(scores * 2, labels, lengths, lengths // 4)
        (slope,) = torch.autograd.grad(loss, scores, create_graph=True)
        return slope.square().sum()

    for _ in range(3):
        with pytest.raises(RuntimeError, match="_ctc_loss_backward is not implemented"):
            penalty(scores).backward()
