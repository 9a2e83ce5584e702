# tests/training/test_kept_values.py
"""What a forward pass keeps for the backward pass: each value once, and none that the caller writes to."""

from __future__ import annotations

import torch
from torch import nn

import torchbolt


class Parallel(nn.Module):
    """Attention and perceptron of one input, each behind a norm of its own, as in GPT-NeoX: the norms' mean, deviation
    and input are one value each."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.maps = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.first = nn.Linear(16, 32)
        for parameter in self.norms.parameters():
            nn.init.normal_(parameter)

    def forward(self, x):
        x = self.first(x).tanh()
        one, two = (m(n(x)) for m, n in zip(self.maps, self.norms, strict=True))
        return x + one.tanh() + two.sigmoid()


def kept_by(run, x):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        result = run(x)
    return result, kept


def twice(kept):
    """Pairs of kept tensors that hold the same in two places."""
    pairs = []
    for i, a in enumerate(kept):
        for b in kept[:i]:
            if a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) and a.data_ptr() != b.data_ptr():
                pairs.append((tuple(a.shape), a.dtype))
    return pairs


def test_equal_values_are_kept_in_one_memory():
    torch.manual_seed(0)
    model, x = Parallel().double(), torch.randn(4, 6, 16, dtype=torch.float64)
    compiled = torchbolt.compile(model)
    model(x).square().sum().backward()
    want = [p.grad.clone() for p in model.parameters()]
    for _ in range(4):
        model.zero_grad()
        result, kept = kept_by(compiled, x)
        result.square().sum().backward()
        for p, w in zip(model.parameters(), want, strict=True):
            torch.testing.assert_close(p.grad, w)
    assert kept and not twice(kept)
    places = [t.data_ptr() for t in kept]
    assert len(set(places)) < len(places)


def test_what_the_caller_may_write_to_is_kept_apart():
    """A result that equals what is kept, and is written to before the backward pass."""
    torch.manual_seed(0)
    model, x = Parallel().double(), torch.randn(4, 6, 16, dtype=torch.float64)

    def run(x):
        y = model(x)
        h = model.first(x).tanh()
        return y, h.detach().clone(), h.exp().sum()

    compiled = torchbolt.compile(run)
    y, _, e = run(x)
    (y.square().sum() + e).backward()
    want = [p.grad.clone() for p in model.parameters()]
    for _ in range(4):
        model.zero_grad()
        y, h, e = compiled(x)
        h.zero_()
        (y.square().sum() + e).backward()
        for p, w in zip(model.parameters(), want, strict=True):
            torch.testing.assert_close(p.grad, w)


def test_passes_one_after_another():
    """What two passes read goes when both have come, and a graph that is kept can be gone through again."""
    torch.manual_seed(0)
    model, x = Parallel().double(), torch.randn(4, 6, 16, dtype=torch.float64, requires_grad=True)
    compiled = torchbolt.compile(model)
    want = torch.autograd.grad(model(x).sin().sum(), [x, *model.parameters()])
    for _ in range(4):
        loss = compiled(x).sin().sum()
        once = torch.autograd.grad(loss, [x, *model.parameters()], retain_graph=True)
        again = torch.autograd.grad(loss, [x, *model.parameters()])
        for a, b, w in zip(once, again, want, strict=True):
            torch.testing.assert_close(a, w)
            torch.testing.assert_close(b, w)


def test_a_part_of_a_product_is_kept_where_the_product_lies():
    """Of rows that are a little longer, as padded logits; for any number of rows; and what the caller writes to is
    apart from it."""

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(16, 64, bias=False)

        def forward(self, x):
            y = self.map(x)[:, :60].contiguous()
            return y * 1, y.sin().exp().sum()

    torch.manual_seed(0)
    model = Cut().double()
    compiled = torchbolt.compile(model)
    before = torchbolt.stats()["recordings"]
    for rows in (10, 10, 10, 12, 14, 16, 30):
        x = torch.randn(rows, 16, dtype=torch.float64)
        gradients = []
        for run in (model, compiled):
            model.zero_grad()
            (shown, loss), kept = kept_by(run, x)
            shown.detach().zero_()
            (shown.sum() + loss).backward()
            gradients.append(model.map.weight.grad)
        torch.testing.assert_close(*gradients)
    assert (rows, 60) in [tuple(t.shape) for t in kept if t.stride() == (64, 1)]
    assert torchbolt.stats()["recordings"] - before <= 2


def test_a_parameter_is_updated_before_the_pass_of_a_loss_that_is_not_made_of_it():
    """What that loss reads of it is kept, as in eager."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.randn(32, 32, dtype=torch.float64)) for _ in range(2))

        def forward(self, x):
            with torch.no_grad():
                scale = self.first.sigmoid() * 2
            shown = x * self.second * scale + self.first.detach().exp() * self.second.sin()
            return shown.sum(), (self.first * x).square().sum()

    def run(compiled):
        torch.manual_seed(0)
        model = Two()
        optimizer = torch.optim.SGD([model.first], lr=0.1)
        fast = compiled(model)
        for _ in range(4):
            one, two = fast(torch.randn(32, 32, dtype=torch.float64))
            two.backward()
            optimizer.step()
            one.backward()
        return model.first.grad, model.second.grad, model.first

    torch.testing.assert_close(run(torchbolt.compile), run(lambda model: model))
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_an_expanded_argument_is_kept_as_it_lies():
    """As a copy where the function only scales it by one, for what is returned may be written to."""
    fn = lambda x, y: (x * 1).copysign(y)
    fast = torchbolt.compile(fn)
    for _ in range(4):
        x, y = torch.randn(1, 8, requires_grad=True), torch.randn(6, 8)
        want, got = (torch.autograd.grad(run(x.expand(6, 8), y).square().sum(), x) for run in (fn, fast))
        torch.testing.assert_close(got, want)
