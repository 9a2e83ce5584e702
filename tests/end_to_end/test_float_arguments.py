# tests/end_to_end/test_float_arguments.py
"""Operators whose schema says `float` (dropout's p, an eps): one program for all that differ between calls.

torch's argument parser turns such a number into a double before the operator is called, unlike a `Scalar`'s.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torchbolt

FLOATS = [0.5, 0.25, 0.125, 0.375, 0.75, 0.5]
LABELS = torch.tensor([0, 1, 2, 3, 4, 0])


def heads(x):
    return x.reshape(1, 2, 3, 5)


def normalized(x, a):
    many = F.layer_norm(x, (5,), eps=a), F.group_norm(x[None], 3, eps=a), F.rms_norm(x, (5,), eps=a)
    return *many, F.batch_norm(x, x[0].detach(), x[1].detach().abs(), eps=a)


def statistics(x, a):
    mean, var = torch.zeros(5), torch.ones(5)
    return F.batch_norm(x, mean, var, training=True, momentum=a), mean, var


def losses(x, a):
    return (
        F.cross_entropy(x, LABELS, label_smoothing=a),
        F.huber_loss(x, x * 2, delta=a),
        F.smooth_l1_loss(x, x * 2, beta=a),
        F.margin_ranking_loss(x, x + 1, torch.ones(6, 5), margin=a),
        F.triplet_margin_loss(x, x + 1, x - 1, margin=a),
    )


def filled(x, a):
    return F.pad(x, (1, 1), value=a), torch.nan_to_num(x / 0, a, posinf=a, neginf=-a)


def attended(x, a):
    q = heads(x)
    return F.scaled_dot_product_attention(q, q, q, scale=a)


def drawn(x, a):
    made = torch.empty(3).normal_(a, a + 1), torch.empty(3).uniform_(-a, a), torch.empty(3).exponential_(a)
    return *made, torch.bernoulli(x.detach(), a), F.dropout(x, a), F.alpha_dropout(x, a, training=True)


def distances(x, a):
    return F.cosine_similarity(x, x + 1, eps=a), F.pairwise_distance(x, x + 1, eps=a), torch.quantile(x, a)


def the_same_twice(x, a):
    return torch.isclose(x, x + 0.1, rtol=a, atol=a), torch.empty(3).normal_(a, a), x * a


def computed(x, a):
    return F.dropout(x, a / 2), F.layer_norm(x, (5,), eps=a * a + 1e-5)


def run(fn, numbers, compiled, grad=False, **options):
    torchbolt.reset()
    fast = torchbolt.compile(fn, fullgraph=True, recompile_limit=32, **options)
    torch.manual_seed(0)
    given = torch.randn(6, 5)
    for number in numbers:
        results = []
        for each in (fast, fn):
            x = given.clone().requires_grad_(grad)
            torch.manual_seed(1)
            with torch.set_grad_enabled(grad):
                result = each(x, number)
            result = result if isinstance(result, tuple) else (result,)
            if grad:
                sum(r.sum() for r in result if r.requires_grad).backward()
                result = *result, x.grad
            results.append(result)
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert torchbolt.stats()["regions"] == compiled
    assert torchbolt.stats()["eager_fallbacks"] == 0


def scaled(x, a):
    image, a = heads(x), a + 1
    pairs = [F.interpolate(image, scale_factor=a, mode=mode) for mode in ("nearest", "nearest-exact", "bilinear")]
    clear = F.interpolate(image, scale_factor=a, mode="bicubic", antialias=True)
    row = F.interpolate(image[0], scale_factor=(a,), mode="linear", align_corners=True)
    return *pairs, clear, row, F.interpolate(image, scale_factor=(a, a * 2), mode="bicubic")


ROWS = [normalized, statistics, losses, filled, attended, drawn, distances, the_same_twice, computed, scaled]


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("fn", ROWS, ids=lambda fn: fn.__name__)
def test_one_program_for_all_floats(fn, grad):
    run(fn, FLOATS, 2, grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends(backend):
    run(losses, FLOATS, 2, backend=backend)


def test_0_and_1_are_told_apart():
    """Dropout of 0 gives what it was given, of 1 zeros."""

    def fn(x, a):
        y = F.dropout(x, a)
        z = x + 1
        y.mul_(2)
        return y, z, x, torch.tensor(y is x)

    run(fn, [0.5, 0.25, 0.0, 1.0, 0.75, -0.0, 1.0, 0.125], 5)


def test_which_float_it_was_must_be_sure():
    """A constant that happens to be the same number: the number is known to the program, and no other is."""
    run(lambda x, a: torch.empty(3).normal_(a, 0.25), [0.5, 0.25, 0.125, 0.75, 0.25], 3)
    run(lambda x, a: torch.isclose(x, x + 0.1, a, 1 - a), [0.25, 0.5, 0.125, 0.75], 3)


def test_numbers_that_were_equal():
    """Which argument is which nobody can tell: they stay equal. Found to differ, each is followed for itself."""

    def fn(x, a):
        return F.interpolate(heads(x), scale_factor=(a[0], a[1]), mode="bilinear")

    run(fn, [(2.5, 2.5), (1.5, 1.5), (1.25, 1.25), (1.25, 2.5), (2.5, 1.25), (3.5, 1.5)], 3)


def test_scale_of_a_module():
    """Upsample's attribute, in whole numbers too."""
    for scales in (1.5, 2.5, 1.75, 3.5), (2, 3, 5, 4):
        up = torch.nn.Upsample(mode="bilinear")

        def fn(x, a, up=up):
            up.scale_factor = a
            return up(heads(x))

        run(fn, scales, 2)


def test_under_autocast():
    def fn(x, a):
        with torch.autocast("cpu"):
            return F.layer_norm(x, (5,), eps=a), F.dropout(x @ x.T, a)

    run(fn, FLOATS, 2)


def test_where_autocast_casts():
    """What autocast does with the number before it calls the operator again is its own affair."""

    def fn(x, a):
        with torch.autocast("cpu"):
            y = x @ x.T
            return F.triplet_margin_loss(y, y + 1, y * 2, margin=a)

    run(fn, [0.5, 0.25, 0.125], 3)


def test_what_the_operator_refuses():
    torchbolt.reset()

    def fn(x, a):
        return torch.dropout(x + 1, a, True), torch.dropout(x, a, False)

    fast = torchbolt.compile(fn)
    x = torch.ones(3)
    for a in (0.5, 0.25, 0.125):
        torch.manual_seed(1)
        got = fast(x, a)
        torch.manual_seed(1)
        torch.testing.assert_close(got, fn(x, a))
    for each in (fast, fn):
        with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1, but got 1.5"):
            each(x, 1.5)


def test_what_dropout_refuses_where_it_drops_nothing():
    def fn(x, a):
        return torch.dropout(x + 1, a, False) * 2

    run(fn, FLOATS, 2)
    torchbolt.reset()
    fast = torchbolt.compile(fn, recompile_limit=32)
    x = torch.ones(3)
    for a in (0.5, 0.25, 1.5, 0.75, -0.5, 1.0, 0.0, -0.0, 2.5, float("nan"), 0.125):
        outcomes = []
        for each in (fast, fn):
            try:
                outcomes.append(each(x, a).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_fused_optimizers():
    def trained(compiled):
        torch.manual_seed(0)
        weights = [torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)]
        optimizer = torch.optim.AdamW(weights, lr=0.1, fused=True)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        x = torch.randn(5, 4)

        def step():
            optimizer.step()

        step = torchbolt.compile(step) if compiled else step
        for _ in range(10):
            (x @ weights[0] + weights[1]).square().sum().backward()
            step()
            scheduler.step()
            optimizer.zero_grad()
        return weights

    torchbolt.reset()
    for got, want in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(got, want)
    assert torchbolt.stats()["regions"] <= 3
