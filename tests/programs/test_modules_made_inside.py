# tests/programs/test_modules_made_inside.py
"""Parameters and whole modules that a region makes: drawn from eager's random numbers, in its order, and leaves of
autograd's graph wherever they come out. test_break_causes.py has the module constructor as people write it."""

from __future__ import annotations

import inspect

import pytest
import torch
from rows import HIT, MISS, Rows, ints, randn
from torch import nn

import torchbolt

ROWS = Rows()
RAISES = (MISS, MISS, MISS)  # nothing is kept of a call that raises


# What such a leaf's gradient is added to is made in each call, by eager's operators.
MADE_INSIDE = "made to require a gradient inside"


def used(make, *args, **facts):
    """Made, called, and gone; what is drawn afterwards shows how many numbers were."""

    def program(*inputs):
        y = make()(*inputs)
        return y, torch.rand(2)

    ROWS.add(f"{facts.pop('name', '')}_used", lambda: program, args, facts)


def given_out(make, *args, **facts):
    """Called, and returned with its result."""

    def program(*inputs):
        module = make()
        return module(*inputs), module

    ROWS.add(f"{facts.pop('name', '')}_given_out", lambda: program, args, facts)


class Own(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.randn(size) * 0.1)
        self.register_buffer("mean", torch.zeros(size))
        self.register_parameter("none", None)
        self.inner = nn.ModuleList([nn.Linear(size, size) for _ in range(2)])
        nn.init.xavier_uniform_(self.inner[0].weight)
        nn.init.orthogonal_(self.inner[1].weight)

    def forward(self, x):
        for layer in self.inner:
            x = layer(x).relu()
        return (x - self.mean) * self.scale + self.shift


MODULES = {
    "linear": (lambda: nn.Linear(4, 3), [randn(2, 4)]),
    "linear_without_bias": (lambda: nn.Linear(4, 3, bias=False), [randn(2, 4)]),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), [randn(1, 3, 5, 5)]),
    "layer_norm": (lambda: nn.LayerNorm(4), [randn(2, 4)]),
    "batch_norm": (lambda: nn.BatchNorm1d(4), [randn(3, 4)]),
    "embedding": (lambda: nn.Embedding(10, 4, padding_idx=1), [ints(2, 3)]),
    "sequential": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), [randn(2, 4)]),
    "eval": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).eval(), [randn(2, 4)]),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), [randn(2, 4)]),
    "attention": (lambda: nn.MultiheadAttention(8, 2), [randn(3, 2, 8)] * 3),
    "gru": (lambda: nn.GRU(4, 3), [randn(5, 2, 4)]),
    "own": (lambda: Own(4), [randn(2, 4)]),
    "frozen": (lambda: nn.Linear(4, 3).requires_grad_(False), [randn(2, 4)]),
    "double": (lambda: nn.Linear(4, 3, dtype=torch.float64), [randn(2, 4, dtype=torch.float64)]),
}
for name, (make, args) in MODULES.items():
    used(make, *args, name=name)
    given_out(make, *args, name=name)
    replays = "" if name == "frozen" else MADE_INSIDE
    given_out(make, *args, name=f"{name}_with_gradients", grad=True, replays=replays)


# -- Parameters --------------------------------------------------------------------------------------------------------
@ROWS(randn(4))
def parameter_of_a_result(x):
    y = x * 2
    p = nn.Parameter(y)
    return p, y, p + 1, p.requires_grad, p.is_leaf, p.grad_fn, type(p) is nn.Parameter


@ROWS(randn(4))
def parameter_without_gradient(x):
    return nn.Parameter(x * 2, requires_grad=False)


@ROWS(randn(4))
def parameter_on_an_arguments_memory(x):
    p = nn.Parameter(x)
    return p, p * 2


@ROWS(randn(4))
def parameter_written_after_it_was_made(x):
    p = nn.Parameter(x * 2)
    with torch.no_grad():
        p.add_(1)
        p[0] = 5.0
    return p


@ROWS(randn(4))
def parameter_with_an_attribute(x):
    p = nn.Parameter(x * 2)
    p.axes = ("a", "b")
    return p, p.axes


@ROWS(randn(4), grad=True, replays=MADE_INSIDE)
def gradients_of_a_parameter(x):
    p = nn.Parameter(torch.ones(4))
    return (p * x).sum(), p


@ROWS(randn(4), grad=True)
def parameter_nobody_uses(x):
    return nn.Parameter(torch.ones(4)), x * 2


@ROWS(randn(4))
def leaf_by_requires_grad(x):
    y = (x * 2).requires_grad_()
    z = (x * 3).requires_grad_(False)
    w = torch.zeros(4)
    w.requires_grad = True
    return y, z, w, y.requires_grad


@ROWS(randn(4), grad=True, replays=MADE_INSIDE)
def gradients_of_a_leaf(x):
    y = torch.ones(4).requires_grad_()
    return (y * x).sum(), y


@ROWS(randn(4))
def taken_back(x):
    p = nn.Parameter(x * 2)
    p.requires_grad_(False)
    return p, nn.Parameter(x).requires_grad_(False)


@ROWS(randn(4))
def buffer(x):
    return nn.Buffer(x * 2), nn.Buffer(torch.zeros(2), persistent=False)


@ROWS(
    randn(4, dtype=torch.float64), ends=("attribute 'data'", "dict_itemiterator"), expect=(MISS, MISS, HIT), regions=3
)
def converted(x):
    return nn.Linear(4, 3).double()(x)


# Whether a second number must be drawn depends on the first, where torch does it that way.
DRAWS_AGAIN = "while" in inspect.getsource(nn.init._no_grad_trunc_normal_)


@ROWS(randn(4), ends=("aten::is_nonzero",) * DRAWS_AGAIN, regions=1 + DRAWS_AGAIN)
def cut_off_where_numbers_are_too_large(x):
    layer = nn.Linear(4, 4)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    return layer(x)


@ROWS(ints(4), expect=RAISES, regions=0)
def integers_have_no_gradients(x):
    return nn.Parameter(x)


@ROWS(randn(4), grad=True, expect=RAISES, regions=0)
def only_leaves_may_change(x):
    p = nn.Parameter(x)
    return (p * 2).requires_grad_(False)


@ROWS(randn(2, 4))
def tied_weights(x):
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    b.weight = a.weight
    return a(x) + b(x), a, b


@ROWS(randn(2, 4), randn(4, 4, seed=1))
def own_weight(x, w):
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(w * 2)
    with torch.no_grad():
        layer.bias.zero_()
    return layer(x), layer


@ROWS(randn(2, 4))
def state_read_and_loaded(x):
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    b.load_state_dict(a.state_dict())
    return a(x) - b(x), b, [name for name, _ in b.named_parameters()], sum([p.numel() for p in a.parameters()])


@ROWS.made(randn(2, 4))
def stored_at_the_first_call():
    made = {}

    def run(x):
        made["layer"] = nn.Linear(4, 4)
        return made["layer"](x), made

    return run


@ROWS(randn(2, 4), ends="clock_gettime", regions=2)
def in_a_frame_where_a_region_ends(x):
    import time

    layer = nn.Linear(4, 4)
    x = x + 1
    time.clock_gettime(0)
    return layer(x), layer


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_modules_made_inside(row):
    row.check()


class Lazily(nn.Module):
    """Its layer is made by the first call."""

    def __init__(self):
        super().__init__()
        self.layer = None

    def forward(self, x):
        if self.layer is None:
            self.layer = nn.Linear(x.shape[-1], 2)
        return self.layer(x)


def test_a_layer_made_by_the_first_call_stays():
    def outcome(call):
        torch.manual_seed(0)
        return [call(torch.ones(3, 4)).detach().clone() for _ in range(3)]

    with torch.no_grad():
        model, eager = Lazily(), Lazily()
        torch.testing.assert_close(outcome(torchbolt.compile(model)), outcome(eager))
    assert isinstance(model.layer.weight, nn.Parameter) and model.layer.weight.requires_grad
    assert len(list(model.parameters())) == 2


def test_a_module_that_was_given_out_is_trained():
    """By a compiled region's and a replayed one's leaves alike."""
    for grad in (False, True):
        compiled = torchbolt.compile(lambda x: nn.Linear(4, 1))
        for _ in range(3):
            with torch.set_grad_enabled(grad):
                layer = compiled(torch.ones(2, 4))
            optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
            before = layer(torch.ones(2, 4)).sum()
            before.backward()
            optimiser.step()
            assert layer(torch.ones(2, 4)).sum() < before
