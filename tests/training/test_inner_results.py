# tests/training/test_inner_results.py
"""Results that others are made of, all of one program: passes that somebody looks at in between, and others."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


class Decoder(nn.Module):
    """As language models do, it hands out keys and values of each layer beside logits and loss."""

    def __init__(self, layers=3, width=8):
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.layers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.head = nn.Linear(width, 11, bias=False)

    def forward(self, ids, labels):
        x, cache = self.embed(ids), []
        for layer in self.layers:
            q, k, v = layer(x).chunk(3, -1)
            k, v = torch.cat([k[:, :0], k], 1), v * 1.5
            cache += [k, v]
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits, *cache


LOOKS = {
    "nobody": lambda results, seen: None,
    "a hook on the logits": lambda results, seen: results[1].register_hook(lambda g: seen.append(g.clone())),
    "a hook that changes": lambda results, seen: results[3].register_hook(lambda g: g.clamp(-1e-3, 1e-3)),
    "a hook that drops": lambda results, seen: results[5].register_hook(torch.zeros_like),
    "retained": lambda results, seen: [results[i].retain_grad() for i in (1, 4, 7)],
    "a hook on the node": lambda results, seen: results[6].grad_fn.register_prehook(lambda g: (g[0] * 2,)),
    "hooks on all": lambda results, seen: [r.register_hook(lambda g: g * 0.5) for r in results],
}
PASSES = {
    "the loss": lambda r: r[0].backward(),
    "two": lambda r: (r[0] + r[1].sin().sum()).backward(),
    "from outside": lambda r: (r[0] + sum((i + 1) * t.square().sum() for i, t in enumerate(r[2:]))).backward(),
    "an inner one alone": lambda r: r[5].sum().backward(),
    "one after another": lambda r: (r[1].sum().backward(retain_graph=True), r[0].backward()),
    "twice": lambda r: (r[0].backward(retain_graph=True), r[0].backward()),
}


@pytest.mark.parametrize("look, go", list(itertools.product(LOOKS, PASSES)))
def test_passes_and_those_who_look(look, go):
    model = Decoder()
    eager, precise = Decoder(), Decoder().double()
    eager.load_state_dict(model.state_dict()), precise.load_state_dict(model.state_dict())
    fast = torchbolt.compile(model)
    for _ in range(4):
        ids, labels = torch.randint(11, (2, 5)), torch.randint(11, (2, 5))
        found = []
        for run, parameters in ((fast, model), (eager, eager), (precise, precise)):
            parameters.zero_grad()
            results, seen = run(ids, labels), []
            LOOKS[look](results, seen)
            PASSES[go](results)
            kept = [t.grad for t in results if t.retains_grad]
            found.append([*seen, *kept, *(p.grad for p in parameters.parameters())])
        for got, want, exact in zip(*found, strict=True):
            assert (got is None) == (want is None)
            if got is not None:
                torch.testing.assert_close(got, want, rtol=1e-4, atol=5e-6)
                torch.testing.assert_close(got.double(), exact, rtol=1e-3, atol=1e-5)
    assert torchbolt.stats()["eager_fallbacks"] == 0
    (region,) = torchbolt.api.compiled_of(fast)._regions()
    assert "# piece" not in region["graph"]


def test_what_is_asked_for():
    model = Decoder()
    fast = torchbolt.compile(model)
    for _ in range(3):
        ids, labels = torch.randint(11, (2, 5)), torch.randint(11, (2, 5))
        found = []
        for run in (fast, model):
            loss, logits, *cache = run(ids, labels)
            weights = [model.head.weight, model.layers[1].weight, model.embed.weight]
            got = list(torch.autograd.grad(loss, [logits, *cache], retain_graph=True))
            got += torch.autograd.grad(loss, [*cache[2:4], *weights], retain_graph=True)
            got += torch.autograd.grad(cache[4].sum(), [cache[1], weights[1]], retain_graph=True)
            got += torch.autograd.grad(loss, weights[0], retain_graph=True)
            got += torch.autograd.grad([loss, cache[3].sum()], [logits, cache[1], *weights])
            found.append(got)
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
        torch.testing.assert_close(*found, rtol=1e-4, atol=5e-6)


def test_what_a_pass_has_gone_through_is_gone():
    def fn(x, w):
        h = torch.tanh(x @ w)
        return h, h.square().sum()

    fast = torchbolt.compile(fn)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    for f, first in itertools.product((fn, fast, fast, fast), (0, 1)):
        results = f(x, w)
        results[first].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            results[1 - first].sum().backward()


def test_gradients_of_gradients_through_inner_results():
    def fn(x, w):
        h = torch.tanh(x @ w)
        y = (h * h).sum(1)
        return h, y, (y.exp() * h.sum(1)).sum()

    def use(f, dtype, hooked):
        torch.manual_seed(5)
        x = torch.randn(3, 4, dtype=torch.float64).to(dtype).requires_grad_()
        w = torch.randn(4, 5, dtype=torch.float64).to(dtype).requires_grad_()
        h, y, z = f(x, w)
        if hooked:
            y.register_hook(lambda g: g * 3)
        first = torch.autograd.grad(z, [h, y, x], create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        return [*first, *torch.autograd.grad(penalty, [x, w])]

    for hooked in (False, True):
        fast = torchbolt.compile(fn)
        for _ in range(4):
            got, want, exact = (
                use(fast, torch.float32, hooked),
                use(fn, torch.float32, hooked),
                use(fn, torch.float64, hooked),
            )
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close([g.double() for g in got], exact, rtol=1e-3, atol=1e-4)


def test_an_inner_result_that_is_written_before_the_pass():
    """What eager keeps of it raises in eager and here; what it does not keep is no matter in either."""

    def kept(x):
        h = x.exp()
        return h, h.sin().sum()

    def not_kept(x):
        h = x * 3
        return h, h.sum()

    for fn, raises in ((kept, True), (not_kept, False)):
        fast = torchbolt.compile(fn)
        for f in (fn, fast, fast, fast):
            x = torch.randn(5, requires_grad=True)
            h, y = f(x)
            with torch.no_grad():
                h.mul_(2)
            if raises:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    y.backward()
            else:
                y.backward()
                torch.testing.assert_close(x.grad, torch.full((5,), 3.0))


def test_passes_of_several_threads():
    model = Decoder()
    fast = torchbolt.compile(model)
    ids, labels = torch.randint(11, (2, 5)), torch.randint(11, (2, 5))
    for _ in range(3):
        fast(ids, labels)[0].backward()
    loss, logits, *_ = model(ids, labels)
    want = torch.autograd.grad(loss, [logits, model.embed.weight])
    loss, logits, *_ = fast(ids, labels)

    def go(looks):
        for _ in range(30):
            of = [logits, model.embed.weight] if looks else [model.embed.weight]
            got = torch.autograd.grad(loss, of, retain_graph=True)
            assert all(torch.allclose(g, w, rtol=1e-4, atol=5e-6) for g, w in zip(reversed(got), reversed(want)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(go, [True, False] * 2))


def test_lengths():
    model = Decoder()
    fast = torchbolt.compile(model, dynamic=True)
    for b, t in ((2, 5), (3, 7), (4, 9), (2, 12), (5, 5)):
        ids, labels = torch.randint(11, (b, t)), torch.randint(11, (b, t))
        found = []
        for run in (fast, model):
            model.zero_grad()
            loss, logits, *cache = run(ids, labels)
            cache[2].retain_grad()
            (loss + cache[1].sum()).backward()
            found.append([cache[2].grad, *(p.grad.clone() for p in model.parameters())])
        torch.testing.assert_close(*found, rtol=1e-4, atol=5e-6)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_gradients_that_somebody_waits_for():
    """Hooks on parameters cut the tape: inner results and what is made of them lie in one piece or in two."""
    model = Decoder(layers=4, width=32)
    fast = torchbolt.compile(model)
    for _ in range(4):
        ids, labels = torch.randint(11, (2, 5)), torch.randint(11, (2, 5))
        found = []
        for run in (fast, model):
            model.zero_grad()
            order = []
            hooks = [
                p.register_post_accumulate_grad_hook(lambda p: order.append(p.grad.sum().clone()))
                for p in model.parameters()
            ]
            loss, logits, *cache = run(ids, labels)
            cache[3].retain_grad()
            loss.backward()
            [hook.remove() for hook in hooks]
            found.append(
                [torch.stack(order).sort().values, cache[3].grad, *(p.grad.clone() for p in model.parameters())]
            )
        torch.testing.assert_close(*found, rtol=1e-4, atol=5e-6)


def test_an_argument_that_is_rewritten_by_what_is_handed_out():
    """Its node and the inner result's are two pieces'."""

    def fn(x, w):
        scale = w.norm()
        x.t().add_(scale)
        return scale, x[0]

    fast = torchbolt.compile(fn)
    for _ in range(4):
        found = []
        values, weights = torch.randn(3, 4), torch.randn(5)
        for f in (fast, fn):
            x, w = values.clone().requires_grad_(), weights.clone().requires_grad_()
            scale, row = f(x * 2, w)
            found.append(
                [
                    *torch.autograd.grad(row.sin().sum() + scale, scale, retain_graph=True),
                    *torch.autograd.grad(row.sum(), [x, w]),
                ]
            )
        torch.testing.assert_close(*found)
