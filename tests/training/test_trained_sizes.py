# tests/training/test_trained_sizes.py
"""Training with sizes and numbers that differ between calls: one program for all of them, and eager's gradients."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from leaves import leaf
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchbolt


def check_compiled(fast, regions=1, replayed_sets=0):
    """So many programs were made in all, and none of them, or so many sets of sizes, runs eager's operators."""
    stats = torchbolt.stats()
    assert (stats["regions"], stats["eager_fallbacks"], stats["graph_breaks"]) == (regions, replayed_sets, 0)
    if not isinstance(fast, nn.Module):
        assert [r["why_replayed"] for r in fast._regions()] == [""] * regions


def differentiated(fn, args, parameters, seed=2):
    torch.manual_seed(seed)
    results = fn(*args)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [t for t in args if isinstance(t, torch.Tensor) and t.requires_grad] + parameters
    loss = sum(
        (t * torch.linspace(1, 2, t.numel(), dtype=t.dtype).view_as(t)).sum() for t in results if t.requires_grad
    )
    return list(results) + list(torch.autograd.grad(loss, wanted))


def in_double(t):
    if isinstance(t, torch.Tensor) and t.is_floating_point():
        return t.detach().double().requires_grad_(t.requires_grad)
    return t


def check(fn, make, sizes, regions=1, dynamic=True, draws=False):
    """The first of `sizes` is compiled first; the others come in random order, twice, and none is replayed."""
    fast = torchbolt.compile(lambda *args: fn(*args), dynamic=dynamic)
    is_module = isinstance(fn, nn.Module)
    parameters = list(fn.parameters()) if is_module else []
    further = list(sizes[1:]) * 2
    random.Random(1).shuffle(further)
    for each in [sizes[0], *further]:
        args = make(*each)
        torch.testing.assert_close(
            differentiated(fast, args, parameters), differentiated(fn, args, parameters), rtol=1e-4, atol=2e-5
        )
        if draws or is_module:
            continue
        exact = differentiated(fn, [in_double(t) for t in args], [])
        for a, b in zip(differentiated(fast, args, []), exact, strict=True):
            torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-4, atol=2e-5)
    check_compiled(fast, regions)
    return fast


class Attention(nn.Module):
    def __init__(self, channels=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(self, x):
        batch, length, channels = x.shape
        parts = self.qkv(self.norm(x)).split(channels, dim=2)
        q, k, v = (t.view(batch, length, self.heads, channels // self.heads).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, channels))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Embedding(64, 16)
        self.block, self.head = Attention(), nn.Linear(16, 20)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return F.cross_entropy(self.head(self.block(x)).flatten(0, 1), ids.flatten())


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut, self.turn, self.mix = nn.Conv2d(3, 4, 4, 4), nn.Linear(4, 4), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = self.cut(x)
        batch, channels, height, width = x.shape
        rows = self.turn(x.flatten(2).transpose(1, 2)).softmax(-1)
        return self.mix(rows.transpose(1, 2).reshape(batch, channels, height, width)).flatten(2).mean(-1)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).mean((2, 3)))


TWO = [(5, 7), (4, 9), (9, 5), (30, 31), (6, 6), (8, 12)]

MODELS = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)), lambda n, s: (leaf(n, s, 6),)),
    "attention": (Attention, lambda n, s: (leaf(n, s, 16),)),
    "tokens": (Tokens, lambda n, s: (torch.randint(0, 20, (n, s)),)),
    "batch norm": (Images, lambda n, s: (leaf(n, 3, s, s + 1),)),
    "patches": (Patches, lambda n, s: (leaf(n, 3, 4 * s, 4 * n + 8),)),
    "shorter and longer again": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(4, 3, 4, 2)),
        lambda n, s: (leaf(n, 3, s),),
    ),
    "torch's own layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
        lambda n, s: (leaf(n, s, 8),),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    made, make = MODELS[name]
    check(made(), make, TWO)


@pytest.mark.parametrize("name", ["attention", "tokens"])
def test_the_second_size_makes_symbols(name):
    made, make = MODELS[name]
    check(made(), make, TWO, regions=2, dynamic=None)


def cut(x):
    a, b = x.tanh().split([x.shape[0] - 2, 2], 0)
    return (a * b.sum(0, keepdim=True)).exp()


def padded_to_fours(x):
    padded = F.pad(x, (0, (4 - x.shape[1] % 4) % 4))
    return padded.view(x.shape[0], -1, 4).softmax(-1).flatten(1)[:, : x.shape[1]] * x


def attended(q):
    mask = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).triu(1)
    return (q @ q.mT).masked_fill(mask, float("-inf")).softmax(-1) @ q


def behind(q):
    at = torch.arange(q.shape[1])
    return F.scaled_dot_product_attention(q[:, None], q[:, None] * 2, q[:, None], attn_mask=at[None, :] <= at[:, None])


def near(q):
    at = torch.arange(q.shape[1])
    mask = (at[None, :] - at[:, None]).abs() < 4
    return F.scaled_dot_product_attention(q[:, None], q[:, None] * 2, q[:, None], attn_mask=mask)


def checked(x, f):
    """Distributions look whether their parameters are allowed."""
    drawn = torch.distributions.Normal(x, 1 + x.exp())
    return f * torch.distributions.kl_divergence(drawn, torch.distributions.Normal(0.0, torch.ones_like(x)))


one = lambda n, s: (leaf(n, s),)  # noqa: E731
PROGRAMS = {
    "sum by length": (lambda x: x.sum() / x.shape[0], one),
    "mean": (lambda x: (x * x).mean(), one),
    "joined": (lambda x, y: torch.cat([x * 2, y.sin()], 1).tanh(), lambda n, s: (leaf(n, s), leaf(n, s + 2))),
    "cut": (cut, one),
    "padded": (lambda x: F.pad(x, (0, x.shape[0])).sin(), one),
    "padded to fours": (padded_to_fours, lambda n, s: (leaf(n, s + 12),)),
    "views": (lambda x: (x.sin().view(-1), x.cos().t(), x[:, 1:], x[1:] * x.shape[1]), one),
    "parts that overlap": (lambda x: x[:, 1:] * x[:, :-1].exp(), one),
    "an input with gaps": (lambda x: (x * x.exp()).sum(1), lambda n, s: (leaf(n, s + n)[:, :s],)),
    "two lengths": (
        lambda x, y: (x @ y.mT).softmax(-1) @ y,
        lambda n, s: (leaf(n, s, 4), leaf(n, s + 3, 4)),
    ),
    "masked": (attended, lambda n, s: (leaf(n, s, 4),)),
    "a mask that is causal": (behind, lambda n, s: (leaf(n, s, 4),)),
    "a mask that is not": (near, lambda n, s: (leaf(n, s, 4),)),
    "halves": (lambda x: x.chunk(2, 1)[0].sin() * x.chunk(2, 1)[1], lambda n, s: (leaf(n, 2 * s),)),
    "stacked": (lambda x: torch.stack([x, x * 2], 1).reshape(x.shape[0], -1).repeat(2, 1), one),
    "around": (
        lambda x: F.pad(x, (1, 2, 0, 3), mode="circular").sin(),
        lambda n, s: (leaf(n, 2, s, s + 1),),
    ),
    "around where channels lie innermost": (
        lambda x: F.pad(x.contiguous(memory_format=torch.channels_last), (2, 0, 1, 1), mode="circular") * 2,
        lambda n, s: (leaf(n, 2, s, s + 1),),
    ),
    "windows": (lambda x: x.unfold(1, 3, 1).sum(-1) * 2, one),
    "in place": (lambda x: (x * 2).add_(x).mul_(x.shape[0]), one),
    "looked up": (lambda x, i: x[i] * 2, lambda n, s: (leaf(40, 4), torch.randint(0, 40, (n, s)))),
    "sorted": (lambda x: x.gather(1, x.argsort(1)).cumsum(0), one),
    "chosen by labels": (
        lambda x, i: x.log_softmax(-1).gather(-1, i[:, None]).squeeze(-1),
        lambda n, s: (leaf(n, s), torch.randint(0, s, (n,))),
    ),
    "chosen twice": (
        lambda x, i, k: x.gather(1, i) * x.exp().gather(1, k),
        lambda n, s: (leaf(n, s), torch.randint(0, s, (n, 1)), torch.randint(0, s, (n, 3))),
    ),
    "extreme": (lambda x: (x.max(1).values * x.amax(), x.topk(2, 1).values), one),
    "a loss": (lambda x: F.cross_entropy(x, x.argmax(1)), one),
    "pooled": (lambda x: F.max_pool2d(x, 2) * 1, lambda n, s: (leaf(n, 3, s, s + 1),)),
    "in place behind a norm of images": (
        lambda x: F.relu(F.instance_norm(x), inplace=True).square(),
        lambda n, s: (leaf(n, 3, s, s + 1),),
    ),
    "only a parameter": (lambda x, w: (x @ w).relu(), lambda n, s: (torch.randn(n, s, 4), leaf(4, 4))),
    "classes": (lambda x: x.unsqueeze(-1) * F.one_hot(x.detach().argmax(1) % 4, 4)[:, None], one),
    "shares": (lambda x: x * x.detach().quantile(0.5, dim=0), one),
    "bags": (
        lambda w, i, o: F.embedding_bag(i, w, o) * F.embedding_bag(i, w, o, mode="sum"),
        lambda n, s: (leaf(40, 4), torch.randint(0, 40, (2 * n + s,)), torch.arange(n) * 2),
    ),
    "grown": (lambda x: torch.cat([x, x.new_zeros(x.shape[0], 2)], 1) * x.shape[1], one),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    check(*PROGRAMS[name], TWO)


def test_what_is_checked():
    """A check of data is nothing to the backward pass. (The first call of kl_divergence fills a table of torch's.)"""
    checked(leaf(2, 2), 0.5)
    check(checked, lambda n, s: (leaf(n, s), 0.3 * s), TWO)


def test_dropout():
    check(lambda x: F.dropout(x * 2, 0.5) * x, one, TWO, draws=True)


NUMBERS = {
    "a rate": (lambda x, f: (x * x * f).sum(), lambda n, s: (leaf(4, 4), 0.3 * s)),
    "an int": (lambda x, k: (x * x * k).sum(), lambda n, s: (leaf(4, 4), s)),
    "a length": (lambda x, k: x[:k].sin().sum(0), lambda n, s: (leaf(40, 4), s)),
    "all of them": (lambda x, f, k: (x * f + k).pow(2) / x.shape[1], lambda n, s: (leaf(n, s), 0.3 * s, n)),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers(name, dynamic):
    check(*NUMBERS[name], TWO, regions=1 if dynamic else 2, dynamic=dynamic)


def test_marked():
    fast = torchbolt.compile(lambda x: (x * x).mean(0), dynamic=None)
    for n in (3, 8, 5, 31, 17):
        x = leaf(n, 4)
        torchbolt.mark_dynamic(x, 0)
        torch.testing.assert_close(torch.autograd.grad(fast(x).sum(), x)[0], 2 * x.detach() / n)
    check_compiled(fast)


def test_0_and_1_are_other_programs():
    sizes = [(5, 7), (1, 7), (0, 7), (9, 8), (1, 8), (0, 9), (30, 4)]
    fast = torchbolt.compile(lambda x: (x * x).sum(1), dynamic=True)
    for _ in range(2):
        for n, s in sizes:
            x = leaf(n, s)
            torch.testing.assert_close(torch.autograd.grad(fast(x).sum(), x)[0], 2 * x.detach())
    check_compiled(fast, 3)


# --- Several sets of sizes at once ------------------------------------------------------------------------


def test_backward_passes_in_another_order():
    fast = torchbolt.compile(Attention.forward, dynamic=True)
    model = Attention()
    given = [leaf(n, s, 16) for n, s in TWO]
    want = [torch.autograd.grad(model(x).pow(2).sum(), [x, *model.parameters()]) for x in given]
    results = [fast(model, x) for x in given]
    for i in (3, 0, 5, 1, 4, 2):
        got = torch.autograd.grad(results[i].pow(2).sum(), [given[i], *model.parameters()])
        torch.testing.assert_close(got, want[i], rtol=1e-4, atol=1e-4)
    check_compiled(fast)


def test_two_results_in_one_pass():
    fast = torchbolt.compile(lambda x: (x.sin() * x.shape[0]).cumsum(0), dynamic=True)
    xs = [leaf(n, 4) for n in (5, 3, 9, 2)]
    torch.cat([fast(x) for x in xs]).pow(2).sum().backward()
    got = [x.grad.clone() for x in xs]
    want = torch.autograd.grad(torch.cat([(x.sin() * x.shape[0]).cumsum(0) for x in xs]).pow(2).sum(), xs)
    torch.testing.assert_close(got, list(want))
    check_compiled(fast)


def test_threads():
    model = Attention()
    fast = torchbolt.compile(model, dynamic=True)
    fast(leaf(3, 4, 16)).sum().backward()

    def work(seed):
        order = random.Random(seed)
        for _ in range(10):
            x = torch.randn(order.randint(2, 6), order.randint(2, 12), 16, requires_grad=True)
            got, want = (torch.autograd.grad(f(x).pow(2).sum(), x)[0] for f in (fast, model))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    check_compiled(fast)


# --- What autograd does with a node -----------------------------------------------------------------------


def twice(x, w):
    return torch.tanh(x @ w).pow(2) / x.shape[0]


def test_gradients_of_gradients():
    fast = torchbolt.compile(twice, dynamic=True)
    for n in (5, 3, 8, 13, 4):
        at = leaf(n, 6), leaf(6, 5)
        both = []
        for fn in (fast, twice):
            first = torch.autograd.grad(fn(*at).sum(), at, create_graph=True)
            both.append([*first, *torch.autograd.grad(sum(g.pow(2).sum() for g in first), at)])
        torch.testing.assert_close(*both)
    check_compiled(fast)


def test_a_second_pass_and_some_inputs():
    fast = torchbolt.compile(twice, dynamic=True)
    for n in (5, 3, 8, 13, 4):
        at = leaf(n, 6), leaf(6, 5)
        out, want = fast(*at).sum(), torch.autograd.grad(twice(*at).sum(), at)
        for _ in range(2):
            torch.testing.assert_close(torch.autograd.grad(out, at, retain_graph=True), want)
        torch.testing.assert_close(torch.autograd.grad(out, at[1:], retain_graph=True), want[1:])
        torch.testing.assert_close(torch.autograd.grad(out, at[:1]), want[:1])
    check_compiled(fast)


def test_results_that_nobody_uses():
    """Zeros stand for their gradients, of this call's sizes."""
    two = lambda x, y: ((x * y[: x.shape[0]]).sin(), y.exp() * x.sum())  # noqa: E731
    fast = torchbolt.compile(two, dynamic=True)
    for n, m in ((5, 7), (3, 9), (8, 8), (2, 31), (4, 6)):
        at = leaf(n, 3), leaf(m, 3)
        for used in (0, 1):
            want = torch.autograd.grad(two(*at)[used].sum(), at)
            torch.testing.assert_close(torch.autograd.grad(fast(*at)[used].sum(), at), want)
    check_compiled(fast)


def test_gradients_that_lie_otherwise():
    fast = torchbolt.compile(lambda x: (x.sin() * 2).cumsum(0), dynamic=True)
    for n, s in TWO:
        x = leaf(n, s)
        for tangent in (torch.ones(()).expand(n, s), torch.randn(s, n).t(), torch.randn(n, 2 * s)[:, ::2]):
            want = torch.autograd.grad((x.sin() * 2).cumsum(0), x, tangent)
            torch.testing.assert_close(torch.autograd.grad(fast(x), x, tangent), want)
    check_compiled(fast)


@pytest.mark.parametrize("pack", [lambda t: t.clone().contiguous(), lambda t: t.double()])
def test_hooks_see_what_is_saved(pack):
    fast = torchbolt.compile(lambda x: (x[:, 1:].exp() * x.t()[:-1].t()).sin(), dynamic=True)
    for n, s in TWO:
        x = leaf(n, s)
        seen = []
        want = torch.autograd.grad(((x[:, 1:].exp() * x[:, :-1]).sin()).sum(), x)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: (seen.append(t.shape), pack(t))[1], lambda t: t.float()
        ):
            out = fast(x)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), x), want)
        assert seen
    check_compiled(fast)


def test_checkpoints_inside():
    model = Attention()
    fast = torchbolt.compile(lambda x: checkpoint(model, x.sin(), use_reentrant=False) * x.shape[1], dynamic=True)
    for n, s in TWO:
        x = leaf(n, s, 16)
        got = torch.autograd.grad(fast(x).sum(), [x, *model.parameters()])
        want = torch.autograd.grad((model(x.sin()) * s).sum(), [x, *model.parameters()])
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    check_compiled(fast)


def test_checkpoints_around():
    model = Attention()
    fast = torchbolt.compile(model, dynamic=True)
    for n, s in TWO:
        x = leaf(n, s, 16)
        got = torch.autograd.grad(checkpoint(fast, x, use_reentrant=False).sum(), [x, *model.parameters()])
        torch.testing.assert_close(got, torch.autograd.grad(model(x).sum(), [x, *model.parameters()]))
    check_compiled(fast)


# --- What does not hold for all sizes ---------------------------------------------------------------------


def test_sizes_for_which_gradients_are_computed_otherwise():
    """ATen has two ways to compute a distance, by the number of rows."""
    fast = torchbolt.compile(torch.cdist, dynamic=True)
    for n in (5, 9, 40, 12, 40):
        at = leaf(n, 3), leaf(n + 1, 3)
        want = torch.autograd.grad(torch.cdist(*at).sum(), at)
        torch.testing.assert_close(torch.autograd.grad(fast(*at).sum(), at), want, rtol=1e-3, atol=1e-4)
    check_compiled(fast, 1, 1)


def test_a_float_of_a_size_is_a_fact():
    fast = torchbolt.compile(lambda x: x.var(0), dynamic=True)
    for n in (5, 7):
        x = leaf(n, 4)
        torch.testing.assert_close(torch.autograd.grad(fast(x).sum(), x), torch.autograd.grad(x.var(0).sum(), x))
    check_compiled(fast, 2)
    assert "no simple expression" in fast._regions()[0]["sizes_given_up"][0]
