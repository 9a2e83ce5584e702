# tests/ops/test_losses.py
"""Losses and their gradients, as F gives them and as autograd calls them."""

import pytest
import torch
import torch.nn.functional as F
from agree import FLOATS, check, lain_otherwise

import torchbolt

aten = torch.ops.aten
REDUCTIONS = ["none", "mean", "sum"]
NUMBERS = {"none": 0, "mean": 1, "sum": 2}


LOSSES = {
    "mse": lambda x, y, r: F.mse_loss(x, y, reduction=r),
    "l1": lambda x, y, r: F.l1_loss(x, y, reduction=r),
    "smooth l1": lambda x, y, r: F.smooth_l1_loss(x, y, reduction=r, beta=0.7),
    "smooth l1 without a bend": lambda x, y, r: F.smooth_l1_loss(x, y, reduction=r, beta=0.0),
    "huber": lambda x, y, r: F.huber_loss(x, y, reduction=r, delta=0.6),
    "with logits": lambda x, y, r: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=r),
    "weighted": lambda x, y, r: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), y.abs(), reduction=r, pos_weight=y[0, 0].abs()
    ),
    "of probabilities": lambda x, y, r: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), y.abs(), reduction=r),
    "soft margin": lambda x, y, r: F.soft_margin_loss(x, y.sign(), reduction=r),
    "divergence": lambda x, y, r: F.kl_div(x - 4, F.relu(y), reduction=r),
    "divergence of logarithms": lambda x, y, r: F.kl_div(x, y, reduction=r, log_target=True),
}
GRADIENTS = {
    "mse": aten.mse_loss_backward,
    "smooth l1": lambda g, x, y, r: aten.smooth_l1_loss_backward(g, x, y, r, 0.7),
    "huber": lambda g, x, y, r: aten.huber_loss_backward(g, x, y, r, 0.6),
    "entropy": lambda g, x, y, r: aten.binary_cross_entropy_backward(g, x.sigmoid(), y.sigmoid(), None, r),
    "weighted entropy": lambda g, x, y, r: aten.binary_cross_entropy_backward(g, x.sigmoid(), y.sigmoid(), y.abs(), r),
    "soft margin": lambda g, x, y, r: aten.soft_margin_loss_backward(g, x, y.sign(), r),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, reduction):
    for dtype in FLOATS:
        x, y = torch.randn(4, 5, 6, dtype=dtype), torch.randn(4, 5, 6, dtype=dtype)
        for _, each in lain_otherwise(x) if dtype is torch.float32 else [("", x)]:
            check(lambda x, y: LOSSES[name](x, y, reduction), each, y)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, reduction):
    for dtype in FLOATS:
        x, y = torch.randn(4, 5, 6, dtype=dtype), torch.randn(4, 5, 6, dtype=dtype)
        g = torch.randn_like(x) if reduction == "none" else torch.tensor(1.5, dtype=dtype)
        for _, each in lain_otherwise(x) if dtype is torch.float32 else [("", x)]:
            check(lambda g, x, y: GRADIENTS[name](g, x, y, NUMBERS[reduction]), g, each, y)


def test_probabilities_that_are_none_raise():
    compiled = torchbolt.compile(F.binary_cross_entropy)
    x, y = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 0.3, 0.0])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, y), F.binary_cross_entropy(x, y))
        for bad in (1.5, -0.5, float("nan")):
            with pytest.raises(RuntimeError, match="between 0 and 1"):
                compiled(torch.tensor([0.0, bad, 1.0]), y)
        torch.testing.assert_close(compiled(x, y), F.binary_cross_entropy(x, y))


def test_products_with_logarithms():
    x, y = torch.tensor([0.0, 0.0, 1.0, 2.0, 0.0]), torch.tensor([0.0, 3.0, 0.0, 4.0, float("nan")])
    check(lambda x, y: (torch.xlogy(x, y), torch.xlogy(x, 2), torch.xlogy(2, y)), x, y)


SHAPES = {"rows": (7, 11), "one row": (11,), "signals": (3, 11, 5), "images": (2, 11, 3, 4)}


def labels_for(shape, ignored=-100, some=True):
    batch = shape[:1] + shape[2:] if len(shape) > 1 else ()
    labels = torch.randint(0, 11, batch)
    if some and batch:
        labels.view(-1)[1] = ignored
    return labels


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy(shape, reduction, dtype):
    x = torch.randn(SHAPES[shape], dtype=dtype) * 3
    weight = torch.rand(11, dtype=dtype) + 0.2
    for given in (None, weight):
        for smoothing in (0.0, 0.2):
            for ignored in (-100, 4):
                labels = labels_for(SHAPES[shape], ignored)
                check(
                    lambda x, y, w: F.cross_entropy(
                        x, y, w, reduction=reduction, label_smoothing=smoothing, ignore_index=ignored
                    ),
                    x, labels, given,
                )  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_of_shares(shape, reduction):
    for dtype in FLOATS:
        x = torch.randn(SHAPES[shape], dtype=dtype) * 3
        shares = torch.rand(SHAPES[shape], dtype=dtype)
        for given in (None, torch.rand(11, dtype=dtype)):
            for smoothing in (0.0, 0.2):
                check(
                    lambda x, y, w: F.cross_entropy(x, y, w, reduction=reduction, label_smoothing=smoothing),
                    x, shares, given,
                )  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_negative_log_likelihood(shape, reduction, dtype):
    x = torch.randn(SHAPES[shape], dtype=dtype).log_softmax(0 if shape == "one row" else 1)
    labels, number = labels_for(SHAPES[shape]), NUMBERS[reduction]
    flat = shape in ("rows", "one row")
    forward = aten.nll_loss_forward if flat else aten.nll_loss2d_forward
    backward = aten.nll_loss_backward if flat else aten.nll_loss2d_backward
    for weight in (None, torch.rand(11, dtype=dtype) + 0.2):
        check(lambda x, y, w: F.nll_loss(x, y, w, reduction=reduction), x, labels, weight)
        if shape == "signals":
            continue  # there they are images of one row
        check(lambda x, y, w: forward(x, y, w, number, -100), x, labels, weight)
        loss, total = forward(x, labels, weight, number, -100)
        check(lambda g, x, y, w, t: backward(g, x, y, w, number, -100, t), torch.randn_like(loss), x, labels, weight,
              total)  # fmt: skip


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", ["rows", "one row"])
def test_margins_between_classes(shape, reduction, power):
    number, sizes = NUMBERS[reduction], SHAPES[shape]
    labels = torch.randint(0, 11, sizes[:-1])
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(sizes, dtype=dtype)
        x.view(-1)[0] = torch.nan
        for weight in (None, torch.rand(11, dtype=dtype) + 0.2):
            check(lambda x, y, w: aten.multi_margin_loss(x, y, power, 0.7, w, number), x, labels, weight)
            g = torch.randn_like(aten.multi_margin_loss(x, labels, power, 0.7, weight, number))
            check(lambda g, x, y, w: aten.multi_margin_loss_backward(g, x, y, power, 0.7, w, number), g, x, labels,
                  weight)  # fmt: skip
    with torch.no_grad(), pytest.raises(RuntimeError, match="target out of range"):
        compiled = torchbolt.compile(F.multi_margin_loss)
        for bad in (1, 2, 11):
            compiled(torch.randn(3, 11), torch.tensor([0, 1, bad]))


def test_small_losses_of_large_logits():
    x = torch.randn(16, 50)
    labels = torch.randint(0, 50, (16,))
    x[torch.arange(16), labels] += 15
    check(lambda x, y: F.cross_entropy(x + 1000, y, reduction="none"), x, labels)


def test_nothing_but_ignored_labels():
    x, labels = torch.randn(3, 5), torch.full((3,), -100)
    for reduction in REDUCTIONS:
        check(lambda x, y: F.cross_entropy(x, y, reduction=reduction), x, labels)


def test_no_softmax_is_stored():
    """The logits are read once; what is stored is a few numbers for each row."""
    x, labels = torch.randn(64, 1000), torch.randint(0, 1000, (64,))
    for fn in (F.cross_entropy, lambda x, y: F.nll_loss(x.log_softmax(1), y)):
        with torch.no_grad():
            told = torchbolt.explain(fn)(x, labels)
        assert told.bytes_moved < x.nbytes + 100 * len(labels)


def test_labels_that_are_no_class():
    compiled = torchbolt.compile(F.cross_entropy)
    x = torch.randn(4, 5)
    with torch.no_grad():
        compiled(x, torch.tensor([0, 1, 2, 3]))
        for bad in (5, -1):
            with pytest.raises(IndexError):
                compiled(x, torch.tensor([0, 1, bad, 3]))
        torch.testing.assert_close(
            compiled(x, torch.tensor([0, 1, 4, 3])), F.cross_entropy(x, torch.tensor([0, 1, 4, 3]))
        )
