# tests/autograd/test_joint_sizes.py
"""Joint tapes of runs whose sizes differ between calls: what was recorded once is right for other sizes."""

import math
import re

import pytest
import torch
from test_joint import Block, Language, State, eager_gradients, leaf, same, small_transformer, tensors_of
from torch import nn
from torch.nn import functional as F

from torchbolt import _C


def check(fn, make, *sizes, module=None, recorded=4, given_up=()):
    """Records fn(*make(*sizes[0])) and compares with eager for all of `sizes`. The first few of them tell what
    differs. `given_up`: what is not followed all the same. Gives the joint's symbols and facts."""
    module = module or fn
    calls = [make(*s) for s in sizes]
    kept = list(module.parameters()) + list(module.buffers()) if isinstance(module, nn.Module) else []
    before = State([*kept, *(a for call in calls for a in call)])
    before.put_back()
    joint = _C._joint(fn, calls[0], calls[1:recorded])
    told = _C._joint_symbols(joint)
    assert [line for line in told.splitlines() if " == " in line and "need them to be one" not in line] == list(
        given_up
    ), told
    inputs = _C._joint_inputs(joint)
    for call in calls:
        here = [next((b for a, b in zip(calls[0], call, strict=True) if a is t), t) for t in inputs]
        compare(fn, joint, call, here, before)
    before.put_back()
    return told


def compare(fn, joint, args, inputs, before):
    before.put_back()
    expected = tensors_of(fn(*args))
    differentiated = [expected[i]._base if whole else expected[i] for i, whole in _C._joint_tangents(joint)]
    tangents = [torch.randn_like(o) for o in differentiated]
    gradients = eager_gradients(differentiated, tangents, inputs)
    expected = [o.detach().clone() for o in expected]
    after = State(before.tensors)
    before.put_back()
    assert _C._joint_agrees(joint, inputs, args), _C._joint_symbols(joint) + _C._joint_text(joint)
    for run in (_C._joint_run, _C._joint_run_parts):
        before.put_back()
        with torch.no_grad():
            outputs, found, complaints = run(joint, tangents, None, inputs, args)
        assert complaints == []
        assert [same(a, b) for a, b in zip(outputs, expected, strict=True)] == [True] * len(expected)
        assert [same(a, b) for a, b in zip(found, gradients, strict=True)] == [True] * len(found)
        assert all(map(torch.equal, State(before.tensors).values, after.values)), "what the run wrote to"


# --- Networks ---------------------------------------------------------------------------------------------


def test_perceptron():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Softmax(-1))
    told = check(model, lambda n: (torch.randn(n, 6),), (5,), (6,), (9,), (12,), (33,))
    assert told.count("\n") == 1


def test_many_parts_that_are_joined():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))

    def joined(*parts):
        return model(torch.cat([*parts, parts[0].new_zeros(1, 6)]))

    lengths = [(5, 4, 7, 3), (6, 4, 5, 8), (2, 9, 6, 4), (7, 3, 8, 5), (12, 5, 4, 2)]
    check(joined, lambda *each: tuple(leaf(n, 6) for n in each), *lengths, module=model)


def test_perceptron_of_sequences():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    check(model, lambda n, s: (leaf(n, s, 6),), (5, 4), (6, 4), (5, 7), (7, 9), (2, 33))


@pytest.mark.parametrize("channels_last", [False, True])
def test_convolution_with_batch_norm(channels_last):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    form = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=form)
    check(model, lambda n: (torch.randn(n, 3, 16, 16).to(memory_format=form),), (2,), (3,), (5,), (7,), (12,))


def test_images_of_any_size():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(4, 2, 3))
    sizes = [(2, 16, 20), (3, 16, 20), (2, 17, 20), (2, 16, 21), (4, 19, 23), (5, 31, 24), (2, 40, 33)]
    check(model, lambda n, h, w: (leaf(n, 3, h, w),), *sizes, recorded=6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_language_model(fused, dropout):
    model = Language(lambda: Block(32, 4, fused, True, dropout), places=64)

    def make(n, s):
        ids = torch.randint(0, 50, (n, s))
        return ids, ids.clone()

    told = check(model, make, (2, 9), (3, 9), (2, 10), (5, 13), (4, 40), (7, 8))
    assert told.count("need them to be one") == 2


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_transformers(name):
    model = small_transformer(pytest.importorskip("transformers"), name).train()
    if name == "vit":
        check(lambda x: model(x)[0], lambda n: (torch.randn(n, 3, 16, 16),), (2,), (3,), (5,), (9,), module=model)
        return
    make = lambda n, s: (torch.randint(1, 100, (n, s)),)  # noqa: E731
    check(lambda x: model(x)[0], make, (2, 8), (3, 8), (2, 9), (4, 12), (6, 31), module=model)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    make = lambda n, s: tuple(leaf(n, 4, s, 8) for _ in range(3))  # noqa: E731
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), make,
          (2, 5), (3, 5), (2, 6), (4, 9), (6, 31))  # fmt: skip


def test_attention_by_hand_with_a_mask():
    def run(q, k, v, shown):
        scores = q @ k.transpose(-1, -2) / math.sqrt(8)
        return scores.masked_fill(~shown[:, None, None], -1e9).softmax(-1) @ v

    make = lambda n, s: (*(leaf(n, 4, s, 8) for _ in range(3)), torch.rand(n, s) > 0.3)  # noqa: E731
    check(run, make, (2, 5), (3, 5), (2, 6), (4, 9), (6, 31))


def test_a_pool_that_nobody_differentiates():
    check(lambda x, mask: F.max_pool1d(x, 2, 2) * F.max_pool1d(mask, 2, 2),
          lambda n, s: (leaf(n, 3, s), torch.rand(n, 3, s)), (2, 8), (3, 8), (2, 10), (5, 12), (4, 40))  # fmt: skip


# --- Operators --------------------------------------------------------------------------------------------

TABLE = torch.randn(11, 4, requires_grad=True)

OPERATORS = {
    "means": lambda x, y: (x.mean(), y.mean(0), (x * y).mean((0, 1)), x.mean(1, keepdim=True) * y),
    "sums": lambda x, y: (x.sum(), y.sum(0), (x * y).sum((0, 1), keepdim=True), x.logsumexp(1)),
    "broadcast": lambda x, y: (x + y[0]) * y[:, :1] - y.sum(),
    "softmax": lambda x, y: (x.softmax(1) * y.log_softmax(0)).sum(-1),
    "layer norm": lambda x, y: F.layer_norm(x, (4,)) * y,
    "losses": lambda x, y: (F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.l1_loss(x, y)),
    "entropy": lambda x, y: F.cross_entropy(x.flatten(0, 1), y.detach().argmax(-1).flatten(), label_smoothing=0.1),
    "table": lambda x, y: F.embedding(y.detach().argmax(-1), TABLE) * x,
    "joined": lambda x, y: torch.cat([x, y, x[1:]], 0) * 2,
    "joined along": lambda x, y: torch.cat([x, y[:, 1:]], 1).sum(1),
    "parts": lambda x, y: (x[1:, ::2], y[:, :-1] * 2, x[-1], y.narrow(1, 1, 2), x.select(1, 2) * y[:, 0]),
    "stacked": lambda x, y: torch.stack([x, y], 1).flatten(0, 1),
    "padded": lambda x, y: F.pad(x, (1, 2, 0, 1)) + F.pad(y, (0, 3, 1, 0)),
    "shapes": lambda x, y: (x.transpose(0, 1).reshape(-1, 2, 2) @ y.flatten(0, 1)[:, :2, None]).squeeze(-1),
    "expanded": lambda x, y: (x[:1].expand_as(y) * y, x.mean(0).expand(*y.shape) + y),
    "products": lambda x, y: (x @ y.mT, x @ y[0].mT, torch.einsum("bij,bkj->bik", x, y)),
    "sorted": lambda x, y: x.sort(1).values * y.cumsum(1),
    "indexing": lambda x, y: x[torch.tensor([1, 0, 1])] + y[:1, torch.tensor([2])],
    "moved": lambda x, y: (x.flip(1) + y.roll(1, 0)).movedim(0, 1).contiguous(),
    "in place": lambda x, y: ((x * 2).add_(y).mul_(3), (x + y).relu_()),
    "assigned": lambda x, y: (x * 1).index_fill_(0, torch.tensor([1]), 0.0).masked_fill_(y > 0, 1.0),
    "largest": lambda x, y: (x.amax(1), y.max(0).values),
    "norms": lambda x, y: (x.norm(dim=1), F.normalize(y, dim=1), x.norm()),
    "unbound": lambda x, y: sum(x.unbind(2)) + y.split(1, 2)[1][..., 0],
    "other types": lambda x, y: (x.double() * y.double()).float() + x.bfloat16().float(),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    torch.manual_seed(0)
    check(
        OPERATORS[name], lambda n, s: (leaf(n, s, 4), leaf(n, s, 4)), (3, 5), (4, 5), (3, 6), (6, 7), (9, 8), (14, 31)
    )


def test_sizes_that_are_apart():
    make = lambda n, s, t: (leaf(n, s, 4), leaf(n, t, 4))  # noqa: E731
    told = check(
        lambda x, y: x @ y.mT, make, (3, 5, 5), (4, 5, 5), (3, 6, 5), (3, 5, 6), (7, 8, 9), (2, 30, 9), recorded=5
    )
    assert told.count("need them to be one") == 1


GAPS = {
    "read": lambda x: (x.exp().sum(1), x * 2, x.reshape(-1, 4).cumsum(0)),
    "windows": lambda x: x.unfold(1, 2, 1).sum(-1) * 2,
    "written": lambda x: (x * 1).index_fill_(0, torch.tensor([1]), 0.0) + x.mean(1, keepdim=True),
}


@pytest.mark.parametrize("name", GAPS)
def test_inputs_with_gaps(name):
    make = lambda n, s, gap: (leaf(n, s + gap, 4)[:, :s],)  # noqa: E731
    told = check(GAPS[name], make, (3, 5, 1), (4, 5, 1), (3, 6, 1), (3, 5, 2), (6, 9, 4), (5, 31, 7), recorded=5)
    assert "t0_32" in told.splitlines()[:3], told


def test_halves():
    make = lambda n: (leaf(n, 4),)  # noqa: E731
    check(lambda x: (x.view(2, -1, 4).sum(0), x.view(2, -1).mean(1)), make, (6,), (12,), (18,), (8,), (22,))


# --- Numbers ----------------------------------------------------------------------------------------------

NUMBERS = {
    "factor": lambda x, f: (x * x * f).sum(),
    "quotient": lambda x, f: (x * x / f, f - x),
    "factor of a term": lambda x, f: torch.add(x, x * x, alpha=f),
    "in place": lambda x, f: (x * x).mul_(f).add_(x, alpha=f),
    "factor of a step": lambda x, f: x.addcmul(x, x, value=f) * f,
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("whole", [False, True])
def test_numbers(name, whole):
    number = (lambda f: 3 + int(4 * f)) if whole else (lambda f: f)
    make = lambda n, f: (leaf(n, 4), number(f))  # noqa: E731
    told = check(NUMBERS[name], make, (3, 0.5), (4, 0.5), (3, 0.75), (7, 2.5), (6, -0.25), (9, 3.0))
    assert told.splitlines()[1] == ("n1" if whole else "f1")
    assert ("!= 0" in told) == (name != "factor")


def test_lengths_that_are_numbers():
    def run(x, n):
        return x[:n].sum(0) * x.new_ones(n, 4).mean(0) + x.narrow(0, 1, n - 1).mean(0)

    make = lambda n, k: (leaf(n, 4), k)  # noqa: E731
    told = check(run, make, (9, 3), (10, 3), (9, 4), (12, 7), (30, 11))
    assert told.splitlines()[:2] == ["t0_0", "n1"]


def test_a_number_that_gradients_compute_with():
    make = lambda f: (leaf(3), f)  # noqa: E731
    joint = _C._joint(lambda x, f: (x.abs() + 1) ** f, make(2.5), [make(3.5), make(0.75)])
    told = _C._joint_symbols(joint).splitlines()
    assert len(told) == 1 and told[0].startswith("f1 == ")


# --- The parts, lowered -----------------------------------------------------------------------------------


def attended(x):
    y = F.layer_norm(x, (8,)).tanh()
    return ((x @ y.mT).softmax(-1) @ y).mean()


LOWERED = {
    "attended": attended,
    "a mean of nothing that is kept": lambda x: x.mean(),
    "a mean and a part": lambda x: (x[:, 1:].sum(1) * 2).mean(),
    "flattened": lambda x: F.linear(x, WEIGHT).relu().flatten(0, 1).sum(0),
}
WEIGHT = torch.randn(3, 8, requires_grad=True)


@pytest.mark.parametrize("name", LOWERED)
def test_parts_are_lowered_for_all_sizes(name):
    make = lambda n, s: (leaf(n, s, 8),)  # noqa: E731
    joint = _C._joint(LOWERED[name], make(23, 29), [make(24, 29), make(23, 30), make(31, 37), make(40, 33)])
    for part in _C._joint_parts(joint):
        graph = _C._opt(part, ["--emit=graph", "-"])[0]
        assert not re.search(r"(?<!%)\b(23|29|28|667|5336|644)\b", graph), part + graph


# --- What is given up -------------------------------------------------------------------------------------


def test_a_float_that_is_computed_from_a_size():
    make = lambda n, s: (leaf(n, s),)  # noqa: E731
    joint = _C._joint(lambda x: x.var(1), make(3, 5), [make(4, 5), make(3, 6), make(5, 8)])
    told = _C._joint_symbols(joint).splitlines()
    assert told[0] == "t0_0" and told[1].startswith("t0_1 == 5") and len(told) == 2


def test_calls_that_no_trial_has_shown():
    """A size of 1 is broadcast, which is another program."""
    make = lambda n: (leaf(n, 4), leaf(n, 4))  # noqa: E731
    joint = _C._joint(lambda x, y: x * y, make(3), [make(5), make(6), make(8)])
    assert _C._joint_agrees(joint, make(100), ())
    x, y = leaf(7, 4), leaf(1, 4)
    assert _C._joint_symbols(joint).splitlines()[2].startswith("t0_0 == t1_0")
    assert not _C._joint_agrees(joint, [x, y], ())


def test_text():
    make = lambda n: (leaf(n, 4),)  # noqa: E731
    joint = _C._joint(lambda x: x.mean(), make(3), [make(5), make(6)])
    text = _C._joint_text(joint)
    assert "t0_0" in text.split("backward:")[1]
    assert _C._opt(text, ["-"])[0] == "".join(line for line in text.splitlines(True) if not line.startswith("  ; "))
