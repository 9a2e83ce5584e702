# tests/training/test_peaks.py
"""The peak of a training step's memory, as the allocator tells it: no more than eager's.

What is kept is large here beside what is alive for a moment, and temporaries are large enough to come and go.
"""

import collections
import copy
import itertools
import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import torchbolt


def allocations(fn):
    """Bytes got and given back, in order."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        fn()
    found, open_events = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while open_events:
        event = open_events.pop()
        open_events += event.children
        if event.tag == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    return [size for _, size in sorted(found, key=lambda each: each[0])]


def peak(fn):
    now = most = 0
    for size in allocations(fn):
        now += size
        most = max(most, now)
    return most


def peak_of_step(run, model, x):
    """Of a step whose loss is computed outside."""

    def step():
        results = run(x)
        sum(t.square().mean() for t in (results if isinstance(results, tuple) else (results,))).backward()

    model.zero_grad(set_to_none=True)
    most = peak(step)
    model.zero_grad(set_to_none=True)
    return most


def compare(model, x, pieces):
    eager = [peak_of_step(model, model, x) for _ in range(2)][1]
    fast = torchbolt.compile(model)
    # The second call is the first of the program, which gets the memory that it keeps from call to call.
    ours = [peak_of_step(fast, model, x) for _ in range(4)][1:]
    regions = [r for r in torchbolt.api.compiled_of(fast)._regions() if r.get("ops")]
    assert [max(1, r["graph"].count("# piece")) for r in regions] == [pieces]
    assert torchbolt.stats()["eager_fallbacks"] == 0
    assert max(ours) <= 1.001 * eager
    return ours, eager


class Block(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Pooled(Blocks):
    def __init__(self):
        super().__init__()
        self.pooler = nn.Linear(256, 256)

    def forward(self, x):
        x = super().forward(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Three(Blocks):
    def forward(self, x):
        a = self.blocks[0](x)
        b = self.blocks[2](self.blocks[1](a))
        return a, b, self.blocks[3](b)


class Images(nn.Module):
    """The first images are the largest, so temporaries of the backward pass are when little is left of what
    was kept."""

    def __init__(self):
        super().__init__()
        widths = [3, 32, 32, 32, 32]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in zip(widths, widths[1:], strict=False)
        )

    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        x = F.max_pool2d(x, 2)
        for layer in self.layers[2:]:
            x = layer(x)
        return x, x.mean((2, 3))


def test_one_result():
    ours, eager = compare(Blocks(), torch.randn(16, 128, 256), pieces=1)
    assert min(ours) < 0.9 * eager


def test_a_pooled_result():
    compare(Pooled(), torch.randn(16, 128, 256), pieces=1)


def test_three_results_made_of_each_other():
    compare(Three(), torch.randn(16, 128, 256), pieces=1)


def test_images_and_their_mean():
    compare(Images(), torch.randn(8, 3, 64, 64), pieces=1)


def test_gradients_of_parameters_come_when_what_was_kept_goes():
    """As large as what is kept: there is never all of both."""

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(768, 768) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    compare(Wide(), torch.randn(768, 768), pieces=1)


def test_what_is_saved_is_let_go_of_while_the_backward_pass_runs():
    """Also behind an operator of the user's, which may give the call to eager."""

    @torch.library.custom_op("bolt_peaks::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda ctx, g: twice(g))
    model = Blocks()
    plain, _ = compare(model, torch.randn(16, 128, 256), pieces=1)

    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return twice(self.model(x))

    doubled, _ = compare(Doubled(), torch.randn(16, 128, 256), pieces=1)
    assert min(doubled) < 1.2 * min(plain)


def test_what_crosses_and_nobody_else_holds_is_not_free_to_keep():
    """Eager keeps which elements are positive. Keeping `a` for that would be four times as much."""

    def fn(x, w):
        a = x @ w
        r = torch.tanh(a)
        return r, torch.where(a > 0, r, 2 * r).sum(1)

    def kept(run, x, w):
        sizes = {}

        def pack(t):
            sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            results = run(x, w)
        torch.autograd.grad([t.sum() for t in results], (x, w))
        return sum(sizes.values())

    x, w = (torch.randn(64, 64, requires_grad=True) for _ in range(2))
    fast = torchbolt.compile(fn)
    assert [kept(fast, x, w) for _ in range(3)][1:] <= 2 * [kept(fn, x, w)]


# Processors without instructions for products of bfloat16 get them in float32, from copies of the operands in it.
MULTIPLIES_BFLOAT16 = "+bf16" in torchbolt._C._processor()


def test_float32_within_bfloat16_waits_for_no_call():
    """Normalisations compute in float32: what the convolution between them waits for is in bfloat16."""

    def layer(groups):
        return nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=groups, bias=False), nn.BatchNorm2d(32), nn.SiLU())

    class Depthwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*(layer(groups) for groups in (1, 32, 1, 32)))

        def forward(self, x):
            return self.layers(x).mean((2, 3))

    ours, eager = compare(Depthwise().bfloat16(), torch.randn(8, 32, 64, 64).bfloat16(), pieces=1)
    assert min(ours) < (0.75 if MULTIPLIES_BFLOAT16 else 0.9) * eager


# Whole steps: forward and backward pass and update are one program.


class Attention(nn.Module):
    def __init__(self, width, causal):
        super().__init__()
        self.causal = causal
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(y.transpose(1, 2).flatten(2))


def layers(width, causal):
    return nn.Sequential(*(nn.Sequential(Attention(width, causal), Block(width)) for _ in range(4)))


class Language(nn.Module):
    def __init__(self, width=128, words=256):
        super().__init__()
        self.words, self.layers, self.norm = nn.Embedding(words, width), layers(width, True), nn.LayerNorm(width)

    def forward(self, x):
        return (self.norm(self.layers(self.words(x))) @ self.words.weight.t()).flatten(0, 1)

    def batch(self):
        return torch.randint(0, 256, (16, 64)), torch.randint(0, 256, (16 * 64,))


class Pictures(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.patches, self.layers = nn.Conv2d(3, width, 8, 8), layers(width, False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(1))

    def batch(self):
        return torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))


def trained(model, wrap, autocast, parts):
    """The losses and parameters of a few steps, the peak of the last, and what was called."""
    model = copy.deepcopy(model)
    opt = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(x, y):
        total = 0
        for xs, ys in zip(x.chunk(parts), y.chunk(parts), strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(model(xs), ys) / parts
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return total

    run = wrap(step)
    torch.manual_seed(1)
    *first, last = [model.batch() for _ in range(5)]
    losses = [run(*batch) for batch in first]
    most = peak(lambda: losses.append(run(*last)))
    return (losses, [p.detach() for p in model.parameters()]), most, run


BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "bf16": 2, "b8": 1}
BUFFER = re.compile(r"b\d+ = (?:temp|output \d+)(?! \S+ over)[^:]*: (\w+)\[([^]]*)\].* steps (\d+)\.\.(\d+)")


def planned_peak(plan):
    """Of what has memory while a step of the plan runs. All of it has memory of its own where it is large."""
    change = collections.Counter()
    for dtype, sizes, first, last in BUFFER.findall(plan):
        size = BYTES[dtype] * math.prod(int(n) for n in sizes.split(", ") if n)
        change[int(first)] += size
        change[int(last) + 1] -= size
    return max(itertools.accumulate(change[i] for i in range(max(change) + 1)))


@pytest.mark.parametrize(("autocast", "parts"), [(False, 1), (False, 2), (True, 1), (True, 2), (True, 4)])
@pytest.mark.parametrize("make", [Language, Pictures])
def test_whole_steps(make, autocast, parts):
    model = make()
    (losses, parameters), eager, _ = trained(model, lambda step: step, autocast, parts)
    found, _, fast = trained(model, torchbolt.compile, autocast, parts)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0)
    torch.testing.assert_close(found[0], losses, rtol=1e-2 if autocast else 1e-4, atol=1e-4)
    if not autocast:  # of a gradient that is nearly zero AdamW looks at the sign, which is a matter of rounding
        torch.testing.assert_close(found[1], parameters, rtol=1e-4, atol=1e-4)
    plans = [r["plan"] for r in torchbolt.api.compiled_of(fast)._regions() if r.get("plan")]
    # Beside a small part of a batch the float32 copies of weights are large.
    in_float32 = 1.06 if parts < 4 else 1.45
    assert planned_peak(plans[-1]) < (0.96 if MULTIPLIES_BFLOAT16 or not autocast else in_float32) * eager


@pytest.mark.parametrize("autocast", [False, True], ids=["f32", "bf16"])
@pytest.mark.parametrize("make", [Language, Pictures])
def test_gradients_of_whole_steps(make, autocast):
    """Two passes, added up: as close to those in float64 as eager's."""
    model = make()
    batches = [model.batch() for _ in range(2)]

    def gradients(wrap, dtype=None):
        this = copy.deepcopy(model).to(dtype)

        def step(*batches):
            this.zero_grad()
            for x, y in batches:
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast and dtype is None):
                    loss = F.cross_entropy(this(x if x.dtype == torch.long else x.to(dtype)), y)
                loss.backward()

        step = wrap(step)
        for _ in range(3):
            step(*batches)
        return [p.grad.double() for p in this.parameters()]

    exact = gradients(lambda step: step, torch.float64)
    eager, ours = gradients(lambda step: step), gradients(torchbolt.compile)
    assert torchbolt.stats()["graph_breaks"] == 0
    for a, e, o in zip(exact, eager, ours, strict=True):
        assert (o - a).norm() <= 1.5 * (e - a).norm() + 1e-6 * a.norm()


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.AdamW(p, 1e-3), lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9)],
    ids=["adamw", "sgd"],
)
def test_steps_measured_as_eager(make, monkeypatch):
    """The calls in which eager has its turn: what they write is not copied once nothing can raise any more."""
    monkeypatch.setenv("TORCHBOLT_CACHE", "0")
    first = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256))
    batches = [torch.randn(8, 256) for _ in range(20)]

    def peaks(wrap):
        model = copy.deepcopy(first)
        opt = make(model.parameters())

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss.detach()

        run = wrap(step)
        return [peak(lambda x=x: run(x)) for x in batches], list(model.parameters())

    eager, expected = peaks(lambda step: step)
    found, parameters = peaks(lambda step: torchbolt.compile(step, options={"measure": True}))
    assert torchbolt.stats()["measured"] + torchbolt.stats()["planned_again"] > 0
    assert max(found[2:]) <= 1.05 * max(eager[2:])
    torch.testing.assert_close(parameters, expected, rtol=1e-4, atol=1e-5)
