# tests/autograd/test_rows.py
"""What is left to single calls of ATen once the joint tape of a model's forward and backward pass is a graph."""

import re

import pytest
import torch
from test_joint import OPERATORS, Block, Language, leaf, small_transformer
from torch import nn
from torch.nn import functional as F

from torchbolt import _C

DRAWN = {"empty_like", "bernoulli_.float"}
ATTENTION = {
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}
CONVOLVED = {"convolution_backward"}


def calls_of_aten(fn, *args):
    """Names of the graph's calls that anybody reads."""
    text = _C._joint_text(_C._joint(fn, args))
    zeros = set(re.findall(r"(%\d+): [^=]*zero", text))
    given = lambda names: ", ".join(n for n in names.split(", ") if n != "None" and n not in zeros)  # noqa: E731
    text = re.sub(r"return (.*)", lambda m: "return " + given(m[1]), text)
    graph = _C._opt(text, ["--emit=graph", "-"])[0]
    calls = re.findall(r'^ *(.*?) = extern_call.*?name="aten::([^"]+)"', graph, re.MULTILINE)
    results = [(re.findall(r"%\d+", made), name) for made, name in calls]
    return {name for made, name in results if any(len(re.findall(rf"{v}\b", graph)) > 1 for v in made)}


def images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.GroupNorm(4, 16), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 4),
    )  # fmt: skip


def test_perceptron():
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    assert not calls_of_aten(lambda x: F.cross_entropy(model(x), torch.tensor([0, 2, 1])), torch.randn(3, 6))


def test_images():
    model, labels = images(), torch.tensor([0, 3])
    left = calls_of_aten(lambda x: F.cross_entropy(model(x), labels, label_smoothing=0.1), torch.randn(2, 3, 16, 16))
    assert left == CONVOLVED


@pytest.mark.parametrize("fused", [False, True])
def test_language_model(fused):
    model = Language(lambda: Block(32, 4, fused, True))
    ids = torch.randint(0, 50, (2, 9))
    assert calls_of_aten(model, ids, ids) == (ATTENTION if fused else set())


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "vit"])
def test_transformers(name):
    model = small_transformer(pytest.importorskip("transformers"), name).eval()
    ids = torch.randint(1, 100, (2, 8))
    run, x, left = {
        "bert": (lambda x: model(x)[0], ids, ATTENTION),
        "gpt2": (lambda x: model(x, attention_mask=torch.ones_like(x), labels=x).loss, ids, set()),
        "t5": (lambda x: model(input_ids=x, labels=x, use_cache=False).loss, ids, ATTENTION),
        "vit": (lambda x: model(x)[0], torch.randn(2, 3, 16, 16), CONVOLVED | ATTENTION),
    }[name]
    assert calls_of_aten(run, x) <= left


def test_gated_recurrence():
    assert not calls_of_aten(nn.GRU(4, 6, batch_first=True), torch.randn(2, 3, 4))


LEFT = {
    "cumsum": {"cumsum"},
    "indexing": {"_index_put_impl_"},
    "gather": {"index_add_", "scatter_add_"},
    "scatter": {"scatter_add"},
    "sorted": {"sort", "topk", "scatter_.src"},
    "prelu": {"rrelu_with_noise", "rrelu_with_noise_backward", "empty_like"},
    "unfolded": {"unfold_backward"},
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    torch.manual_seed(0)
    assert calls_of_aten(OPERATORS[name], leaf(3, 4), leaf(3, 4)) <= LEFT.get(name, set())
