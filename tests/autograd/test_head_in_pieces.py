# tests/autograd/test_head_in_pieces.py
"""What is made of the largest product, computed for some rows after others: the same numbers, and nothing whole."""

import math
import re

import pytest
import torch
from test_joint import State, eager_gradients, leaf, tensors_of
from torch.nn import functional as F

from torchbolt import _C

BATCH, LENGTH, WIDTH, WORDS = 4, 12, 6, 40
ROWS = BATCH * LENGTH


def labels(ignored=-100):
    ids = torch.randint(0, WORDS, (BATCH, LENGTH))
    ids[0, 3:7] = ignored
    return ids


def states():
    return leaf(BATCH, LENGTH, WIDTH).double()


def weight():
    return leaf(WORDS, WIDTH).double()


def leaves(*tensors):
    return tuple(t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors)


def plain(h, w, y):
    return F.cross_entropy(F.linear(h, w).view(-1, WORDS), y.view(-1))


def shifted(h, w, y):
    return F.cross_entropy(F.linear(h, w)[:, :-1].flatten(0, 1), y[:, 1:].flatten())


def shifted_labels(h, w, y):
    """As transformers do it, over the number of labels in several batches."""
    y = F.pad(y, (0, 1), value=-100)[..., 1:].contiguous()
    logits = F.linear(h, w)
    return F.cross_entropy(logits.view(-1, WORDS), y.view(-1), reduction="sum") / 37


def smoothed(h, w, y):
    return F.cross_entropy(F.linear(h, w).view(-1, WORDS), y.view(-1), label_smoothing=0.1)


def ignoring(h, w, y):
    return F.cross_entropy(F.linear(h, w).view(-1, WORDS), y.view(-1).clamp(min=-1), ignore_index=-1)


def weighed(h, w, y):
    classes = torch.linspace(0.5, 2, WORDS, dtype=h.dtype)
    return F.cross_entropy(F.linear(h, w).view(-1, WORDS), y.view(-1), weight=classes)


def capped(h, w, y):
    return F.cross_entropy((30 * torch.tanh(F.linear(h, w) / 30)).view(-1, WORDS), y.view(-1))


def scaled_in_place(h, w, y):
    logits = F.linear(h, w)
    logits = logits.mul(2).div_(1.5)
    return F.cross_entropy(logits.view(-1, WORDS), y.view(-1))


def with_z_loss(h, w, y):
    logits = F.linear(h, w).view(-1, WORDS)
    return F.cross_entropy(logits, y.view(-1)) + 1e-2 * logits.logsumexp(-1).square().mean()


def by_hand(h, w, y):
    logits = F.linear(h, w).view(-1, WORDS)
    logits = logits - logits.logsumexp(-1, keepdim=True)
    return -logits.gather(1, y.view(-1, 1).clamp(min=0)).mean()


def of_each_label(h, w, y):
    """Several results, one a row: their gradients come from outside."""
    found = F.cross_entropy(F.linear(h, w).view(-1, WORDS), y.view(-1), reduction="none")
    return found, found.sum() / 3


def of_soft_labels(h, w, y):
    soft = torch.linspace(0, 1, ROWS * WORDS, dtype=h.dtype).view(ROWS, WORDS).softmax(-1)
    return F.cross_entropy(F.linear(h, w).view(-1, WORDS), soft)


def distilled(h, w, y):
    logits = F.linear(h, w).view(-1, WORDS)
    return (logits.log_softmax(-1).exp() * logits).sum() / 7 + logits.square().mean()


def squared(h, w, y):
    """The loss itself is in its gradient: the rows are gone through once more."""
    return F.cross_entropy(F.linear(h, w).view(-1, WORDS), y.view(-1)).square()


def of_the_transposed(h, w, y):
    return F.cross_entropy((h.view(-1, WIDTH) @ w.t().contiguous()).view(-1, WORDS), y.view(-1))


def tied(h, w, y):
    x = F.embedding(y.clamp(min=0), w)
    return F.cross_entropy(F.linear(torch.tanh(x + h), w).view(-1, WORDS), y.view(-1))


def behind_layers(h, w, y):
    x = F.layer_norm(torch.tanh(h), (WIDTH,)) + h
    return F.cross_entropy(F.linear(x, w).view(-1, WORDS), y.view(-1))


LOSSES = [
    plain,
    shifted,
    shifted_labels,
    smoothed,
    ignoring,
    weighed,
    capped,
    scaled_in_place,
    with_z_loss,
    by_hand,
    of_each_label,
    of_soft_labels,
    distilled,
    squared,
    of_the_transposed,
    tied,
    behind_layers,
]


def largest_results(text):
    """Of the entries that make tensors: how many elements these have."""
    made = re.findall(r"^  %\d+: \w+\[([\d, ]*)\](?:\{[\d, ]*\})? = (?!input)", text, re.M)
    return [math.prod(int(n) for n in sizes.split(", ")) for sizes in made if sizes]


def in_pieces(fn, args, pieces):
    joint = _C._joint(fn, args)
    _C._joint_in_pieces(joint, pieces)
    return joint


def check_pieces(fn, args, pieces, **close):
    before = State(list(args))
    joint = in_pieces(fn, args, pieces)
    text = _C._joint_text(joint)
    assert _C._opt(text, ["-"])[0] == "".join(line for line in text.splitlines(True) if not line.startswith("  ; "))
    before.put_back()
    expected = tensors_of(fn(*args))
    differentiated = [expected[i] for i, _ in _C._joint_tangents(joint)]
    tangents = [torch.randn_like(o) for o in differentiated]
    gradients = eager_gradients(differentiated, tangents, _C._joint_inputs(joint))
    for run in (
        _C._joint_run,
        lambda joint, tangents: _C._joint_run_parts(joint, tangents, None),
        lambda joint, tangents: _C._joint_run_parts(joint, tangents, 0.0),
    ):
        before.put_back()
        with torch.no_grad():
            outputs, found, complaints = run(joint, tangents)
        assert complaints == [], text
        torch.testing.assert_close(outputs, [o.detach() for o in expected], **close)
        for a, b in zip(found, gradients, strict=True):
            assert (a is None) == (b is None), text
            if b is not None:
                torch.testing.assert_close(a, b, **close)
    return text


@pytest.mark.parametrize("pieces", [2, 3, 4])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_losses(loss, pieces):
    text = check_pieces(loss, leaves(states(), weight(), labels()), pieces)
    whole = [n for n in largest_results(text) if n > ROWS * WORDS / pieces + WORDS * LENGTH]
    assert not whole or loss in (of_soft_labels,), text


def test_a_bias_belongs_to_it():
    def run(h, w, b, y):
        return F.cross_entropy(F.linear(h, w, b).view(-1, WORDS), y.view(-1))

    bias = leaf(WORDS).double()
    text = check_pieces(run, leaves(states(), weight(), bias, labels()), 4)
    assert text.count("aten::addmm") == 8


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
def test_gradients_of_half_weights_are_added_up_in_float32(type):
    args = leaves(states().to(type), weight().to(type), labels())
    joint = in_pieces(plain, args, 4)
    text = _C._joint_text(joint)
    assert re.search(rf"f32\[{WORDS}, {WIDTH}\] = aten::_to_copy", text)
    with torch.no_grad():
        _, (_, found, _), _ = _C._joint_run(joint, [torch.ones((), dtype=type)])
    exact = [t.detach().double().requires_grad_() if t.is_floating_point() else t for t in args]
    plain(*exact).backward()
    eager = torch.autograd.grad(plain(*args), args[1])[0]
    error = lambda t: (t.double() - exact[1].grad).abs().max()
    assert error(found) <= 2 * error(eager)


def test_under_autocast():
    def run(h, w, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = F.linear(h, w)
        return F.cross_entropy(logits.float().view(-1, WORDS), y.view(-1))

    check_pieces(run, leaves(states().float(), weight().float(), labels()), 3, rtol=2e-2, atol=2e-3)


def test_labels_that_are_all_ignored():
    check_pieces(plain, leaves(states(), weight(), torch.full((BATCH, LENGTH), -100)), 3, equal_nan=True)


def test_parts_without_a_gradient():
    check_pieces(plain, (states().detach(), *leaves(weight(), labels())), 3)
    check_pieces(plain, (*leaves(states()), weight().detach(), labels()), 3)


def refused(fn, args, match):
    joint = _C._joint(fn, args)
    with pytest.raises(RuntimeError, match=match):
        _C._joint_in_pieces(joint, 2)


def test_what_wants_the_logits_as_a_whole():
    args = leaves(states(), weight(), labels())

    def handed_out(h, w, y):
        logits = F.linear(h, w)
        return F.cross_entropy(logits.view(-1, WORDS), y.view(-1)), logits

    def over_rows(h, w, y):
        return F.linear(h, w).view(-1, WORDS).softmax(0).square().sum()

    def dropped(h, w, y):
        return F.cross_entropy(F.dropout(F.linear(h, w), 0.5).view(-1, WORDS), y.view(-1))

    refused(handed_out, args, "wanted as a whole")
    refused(over_rows, args, "not computed by rows")
    refused(dropped, args, "not computed by rows")


def test_images_and_their_classes():
    def run(x, w, v, y):
        return F.cross_entropy(F.linear(torch.relu(F.linear(x, w)), v), y)

    check_pieces(run, leaves(leaf(48, 6).double(), leaf(8, 6).double(), leaf(40, 8).double(), torch.arange(48) % 40), 3)


def test_budgets_are_monotone():
    h, w, y = leaf(1024, 16), leaf(1000, 16), torch.randint(0, 1000, (1024,))

    def run(h, w, y):
        return F.cross_entropy(F.linear(torch.tanh(h), w), y)

    def peak(budget):
        joint = _C._joint(run, (h, w, y))
        within = _C._joint_head_planned(joint, budget)
        return _C._joint_partition(joint, within)[1][2], _C._joint_text(joint).count("nll_loss_forward")

    found = [peak(budget) for budget in (None, 1.0, 0.9, 0.5, 0.2, 0.1, 0.0)]
    peaks = [p for p, _ in found]
    assert peaks == sorted(peaks, reverse=True) and found[0][1] == found[1][1] == 1
    assert found[-1][1] > 4 and peaks[-1] < 0.3 * peaks[0]
    for most in (peaks[0] + 1, peaks[0] // 2, peaks[0] // 3):
        assert peak(most)[0] <= most
