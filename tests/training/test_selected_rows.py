# tests/training/test_selected_rows.py
"""Masks that select what a loss is made of, other rows in each step, in models and in whole steps: one region, whose sizes
are known, with eager's gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from step_scripts import assert_same, net

import torchbolt

ROWS = 24


def squared(out, y, mask, labels):
    return F.mse_loss(out[mask], y[mask])


def mean_and_sum(out, y, mask, labels):
    return out[mask].mean() + 0.01 * out.masked_select(mask[:, None]).sum() + out[mask].mean(0).square().sum()


def of_classes(out, y, mask, labels):
    return F.cross_entropy(out[mask], labels.clamp(0)[mask])


def by_labels(out, y, mask, labels):
    return F.cross_entropy(out[labels != -100], labels[labels != -100], label_smoothing=0.1)


def smoothed_and_ignored(out, y, mask, labels):
    return F.cross_entropy(out[mask], labels[mask], label_smoothing=0.2, reduction="mean")


def summed(out, y, mask, labels):
    return F.cross_entropy(out[mask], labels.clamp(0)[mask], reduction="sum") / mask.sum()


def of_places(out, y, mask, labels):
    places = mask.nonzero().squeeze(-1)
    return F.smooth_l1_loss(out[places], y.index_select(0, places)) + F.l1_loss(out[places, None], y[places, None])


def where_there_is_no_nan(out, y, mask, labels):
    y = torch.where(mask[:, None], y, torch.nan)
    there = ~torch.isnan(y)
    return F.mse_loss(out[there], y[there])


def of_logarithms(out, y, mask, labels):
    p = torch.where(mask[:, None], out.sigmoid(), 0)  # whose logarithm, and gradient, is infinite elsewhere
    return -p[mask].log().mean() + F.binary_cross_entropy(p[mask], y[mask].sigmoid())


def row_by_row(out, y, mask, labels):
    best = out[mask].log_softmax(-1).gather(1, labels.clamp(0)[mask].unsqueeze(1)).squeeze(1)
    return -(best * y[mask].amax(-1).tanh()).mean() + F.binary_cross_entropy_with_logits(out[mask], y[mask].sigmoid())


def made_of_sizes_alone(out, y, mask, labels):
    rows = out[mask]
    return (rows * torch.full_like(rows, 0.5)).var(-1, correction=0).mean() / torch.ones_like(rows).sum()


def where_of_two_dimensions(out, y, mask, labels):
    first, second = torch.where(y > 0)
    return (out[first, second] - y[first, second]).abs().mean() + out.transpose(0, 1)[:, mask].square().mean()


def put_back(out, y, mask, labels):
    rows = torch.zeros_like(out)
    rows[mask] = out[mask].tanh() * 2
    return (rows - y).square().mean()


LOSSES = [
    squared,
    mean_and_sum,
    of_classes,
    by_labels,
    smoothed_and_ignored,
    summed,
    of_places,
    where_there_is_no_nan,
    of_logarithms,
    row_by_row,
    made_of_sizes_alone,
    where_of_two_dimensions,
    put_back,
]


def batches(n, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    for i in range(n):
        mask = torch.rand(ROWS, generator=draw) < (0.3, 0.7)[i % 2]
        mask[:2], mask[2] = True, False
        labels = torch.randint(0, 4, (ROWS,), generator=draw)
        labels[5::3] = -100
        x, y = (torch.randn(ROWS, width, generator=draw) for width in (16, 4))
        yield x.to(dtype), y.to(dtype), mask, labels


def trained(loss_of, wrap, dtype=torch.float32, given=batches):
    model = net().to(dtype)
    opt = torch.optim.SGD(model.parameters(), 0.05)

    @wrap
    def step(x, *rest):
        opt.zero_grad()
        loss = loss_of(model(x), *rest)
        loss.backward()
        opt.step()
        return loss.detach()

    losses = [step(*batch) for batch in given(7, dtype)]
    return losses, [t.detach().clone() for p in model.parameters() for t in (p, p.grad)]


@pytest.mark.parametrize("loss_of", LOSSES)
def test_a_step_is_one_region(loss_of):
    torchbolt.reset()
    ours = trained(loss_of, torchbolt.compile)
    stats = torchbolt.stats()
    assert_same(ours, trained(loss_of, lambda step: step))
    exact = trained(loss_of, lambda step: step, torch.float64)
    torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4, check_dtype=False)
    assert (stats["graph_breaks"], stats["eager_fallbacks"], stats["regions"]) == (0, 0, 2)


@pytest.mark.parametrize("loss_of", LOSSES)
def test_a_model_is_one_region(loss_of):
    torchbolt.reset()
    model = net()
    run = torchbolt.compile(lambda x, *rest: loss_of(model(x), *rest))
    for x, *rest in batches(5):
        found = []
        for each in (run, lambda x, *rest: loss_of(model(x), *rest)):
            model.zero_grad()
            loss = each(x, *rest)
            loss.backward()
            found.append([loss.detach(), *[p.grad.clone() for p in model.parameters()]])
        assert_same(*found)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"], stats["recordings"]) == (0, 0, 1)


@pytest.mark.parametrize("loss_of", [squared, mean_and_sum, summed])
def test_masks_that_select_nothing_or_all(loss_of):
    def given(n, dtype):
        for i, (x, y, mask, labels) in enumerate(batches(n, dtype)):
            yield x, y, (mask, mask, torch.zeros_like(mask), torch.ones_like(mask))[i % 4], labels

    torchbolt.reset()
    ours = trained(loss_of, torchbolt.compile, given=given)
    torch.testing.assert_close(
        ours, trained(loss_of, lambda step: step, given=given), rtol=2e-5, atol=2e-5, equal_nan=True
    )
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("loss_of", [squared, by_labels])
def test_other_sizes_and_numbers_that_differ(loss_of):
    torchbolt.reset()
    model = net()

    def weighted(factor, x, *rest):
        return loss_of(model(x), *rest) * factor

    run = torchbolt.compile(weighted)
    for i, batch in enumerate(batches(9)):
        args = [0.5 + 0.1 * i, *(t[: ROWS - i] for t in batch)]
        found = []
        for each in (run, weighted):
            model.zero_grad()
            loss = each(*args)
            loss.backward()
            found.append([loss.detach(), *[p.grad.clone() for p in model.parameters()]])
        assert_same(*found)
        if i == 5:
            recordings = torchbolt.stats()["recordings"]
    assert torchbolt.stats()["recordings"] == recordings and torchbolt.stats()["eager_fallbacks"] == 0


def test_half_precision_is_summed_up_as_eager_does():
    torchbolt.reset()

    def loss_of(out, y, mask, labels):
        return F.mse_loss(out.bfloat16()[mask], y.bfloat16()[mask]).float()

    ours, eager = trained(loss_of, torchbolt.compile), trained(loss_of, lambda step: step)
    torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-3)


# What is worth having fewer rows, what rests on how many there are, and what leaves by another way than the rows.
def products(out, y, mask, labels):
    return (out[mask] @ y.T).square().mean()


def counted(out, y, mask, labels):
    rows = out[mask]
    return rows.sum() / len(rows)


def scaled_by_what_is_learnt(out, y, mask, labels):
    return (out[mask] * out.mean()).square().mean()


def of_two_masks(out, y, mask, labels):
    return out[mask].mean() + 0.01 * out[labels >= 0].cumsum(0).tanh().mean()


def largest(out, y, mask, labels):
    return out[mask].max()


def written_between(out, y, mask, labels):
    mask = mask.clone()
    before = y[mask].mean()
    mask[3:6] = True
    return (out[mask] - y[mask]).square().mean() * before.square()


@pytest.mark.parametrize(
    "loss_of", [products, counted, scaled_by_what_is_learnt, of_two_masks, largest, written_between]
)
def test_what_needs_the_rows(loss_of):
    torchbolt.reset()
    ours = trained(loss_of, torchbolt.compile)
    assert_same(ours, trained(loss_of, lambda step: step))
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_results_that_are_rows_are_eagers():
    torchbolt.reset()
    model, run = net(), None
    run = torchbolt.compile(lambda x, mask: model(x)[mask])
    for x, _, mask, _ in batches(5):
        want = copy.deepcopy(model)
        got, expected = run(x, mask), want(x)[mask]
        assert_same(got, expected)
        model.zero_grad()
        got.square().sum().backward()
        expected.square().sum().backward()
        assert_same([p.grad for p in model.parameters()], [p.grad for p in want.parameters()])


def contrasts(out, y, mask, labels):
    rows = F.normalize(out, dim=-1)
    alike = rows @ rows.T / 0.5
    others = ~torch.eye(len(alike), dtype=torch.bool)
    return alike[others].view(len(alike), -1).logsumexp(-1).mean() - alike.masked_select(~others).mean()


def pairs(out, y, mask, labels):
    above = torch.ones(ROWS, ROWS).triu(1) > 0
    i, j = torch.where(above)
    return (out[i] - out[j]).square().sum(-1).neg().exp().mean()


@pytest.mark.parametrize("loss_of", [contrasts, pairs])
@pytest.mark.parametrize("test", [test_a_step_is_one_region, test_a_model_is_one_region], ids=["step", "model"])
def test_masks_of_numbers_in_the_code(loss_of, test):
    test(loss_of)
