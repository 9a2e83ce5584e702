# tests/end_to_end/test_equal_layers.py
"""Models of many equal layers, of which a few are planned and the others put back (loops/put_back.h): results, what layers return, keep
and change, and weights that are changed afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchbolt

LAYERS = 17


class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Counting(Layer):
    """Keeps a running mean, as a normalisation in training does."""

    def __init__(self, width: int):
        super().__init__(width)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        y = super().forward(x)
        self.mean.mul_(0.9).add_(y.mean((0, 1)), alpha=0.1)
        return y


class Stack(nn.Module):
    def __init__(self, layer=Layer, width: int = 16, count: int = LAYERS):
        super().__init__()
        self.layers = nn.ModuleList(layer(width) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class States(Stack):
    def forward(self, x):
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return tuple(states)


class Caches(Stack):
    """Keys as views of what a layer computes, values as its results."""

    def forward(self, x):
        kept = []
        for layer in self.layers:
            h = layer.up(layer.norm(x))
            kept.append((h.view(2, 5, 4, 8).transpose(1, 2), torch.relu(h)))
            x = x + layer.down(kept[-1][1])
        return x, kept


class SkipsToTheEnd(Stack):
    def forward(self, x):
        middle = None
        for i, layer in enumerate(self.layers):
            x = layer(x)
            middle = x if i == 4 else middle
        return x + middle


class Counts(Stack):
    """What is left at the end tells how many layers there were."""

    def forward(self, x):
        steps, total = torch.ones(()), x
        for layer in self.layers:
            x = layer(x)
            steps, total = steps + 1, total + torch.relu(x)
        return x, steps, total


class SharedWeights(Stack):
    def forward(self, x):
        for _ in range(LAYERS):
            x = self.layers[0](x)
        return x


class RandomLayers(Stack):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + torch.nn.functional.dropout(x, 0.5, training=True)
        return x


class Opaque(Stack):
    """An operator that stays ATen's in every layer."""

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + torch.cumsum(x, 1)
        return x / 2


def is_shortened(model, *args) -> bool:
    return any("layers repeat" in text for text in torchbolt.explain(model)(*args).graphs)


def same(got, want):
    torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "model, shortened",
    [
        (Stack, True),
        (States, True),
        (Caches, True),
        (SkipsToTheEnd, False),
        (Counts, False),
        (SharedWeights, True),
        (Opaque, True),
    ],
)
@torch.no_grad()
def test_results(model, shortened):
    torch.manual_seed(0)
    model = model().eval()
    compiled = torchbolt.compile(model, fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 5, 16)
        same(compiled(x), model(x))
    assert is_shortened(model, x) == shortened


@torch.no_grad()
def test_random_numbers_are_drawn_in_order():
    torch.manual_seed(0)
    model = RandomLayers().eval()
    compiled = torchbolt.compile(model)
    x = torch.randn(2, 5, 16)
    for seed in range(3):
        torch.manual_seed(seed)
        want = model(x)
        torch.manual_seed(seed)
        same(compiled(x), want)


@torch.no_grad()
def test_buffers_of_all_layers_are_written():
    torch.manual_seed(0)
    model, other = Stack(Counting).eval(), Stack(Counting).eval()
    other.load_state_dict(model.state_dict())
    compiled = torchbolt.compile(other, fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 5, 16)
        same(compiled(x), model(x))
    for mine, eager in zip(other.buffers(), model.buffers(), strict=True):
        same(mine, eager)
    assert is_shortened(other, x)


@pytest.mark.parametrize("which", [0, 1, 6, LAYERS - 2, LAYERS - 1])
@torch.no_grad()
def test_a_weight_of_one_layer_changes(which):
    torch.manual_seed(0)
    model = Stack().eval()
    compiled = torchbolt.compile(model, fullgraph=True)
    x = torch.randn(2, 5, 16)
    for _ in range(3):
        compiled(x)
    model.layers[which].up.weight.mul_(3)
    same(compiled(x), model(x))
    model.layers[which].down = nn.Linear(32, 16)
    same(compiled(x), model(x))


@torch.no_grad()
def test_sizes_that_differ():
    torch.manual_seed(0)
    model = States().eval()
    compiled = torchbolt.compile(model, dynamic=True)
    for batch, length in ((2, 5), (3, 7), (1, 9), (4, 1)):
        x = torch.randn(batch, length, 16)
        same(compiled(x), model(x))


@torch.no_grad()
def test_one_layer_that_differs():
    torch.manual_seed(0)
    model = Stack().eval()
    model.layers[7].norm.eps = 0.5
    x = torch.randn(2, 5, 16)
    same(torchbolt.compile(model, fullgraph=True)(x), model(x))
    wide = Stack().eval()
    wide.layers[9].up, wide.layers[9].down = nn.Linear(16, 48), nn.Linear(48, 16)
    same(torchbolt.compile(wide, fullgraph=True)(x), wide(x))


@torch.no_grad()
def test_a_decoders_cache():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=LAYERS,
        intermediate_size=64,
        vocab_size=50,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    compiled = torchbolt.compile(model)
    ids = torch.randint(0, 50, (2, 9))
    want, got = model(ids), compiled(ids)
    for _ in range(3):
        same(got.logits, want.logits)
        for a, b in zip(got.past_key_values.layers, want.past_key_values.layers, strict=True):
            same((a.keys, a.values), (b.keys, b.values))
        step = torch.randint(0, 50, (2, 1))
        want = model(step, past_key_values=want.past_key_values)
        got = compiled(step, past_key_values=got.past_key_values)
