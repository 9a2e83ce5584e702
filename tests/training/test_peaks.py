"""The peak of a training step's memory, as the allocator tells it: no more than eager's.

What is kept is large here beside what is alive for a moment, and temporaries are large enough to come and go.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import torchbolt


@pytest.fixture(autouse=True)
def start():
    torch.manual_seed(0)
    torchbolt.reset()


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
    assert max(ours) <= eager
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
    assert min(ours) < 0.8 * eager


def test_a_pooled_result():
    compare(Pooled(), torch.randn(16, 128, 256), pieces=2)


def test_three_results_made_of_each_other():
    compare(Three(), torch.randn(16, 128, 256), pieces=3)


def test_images_and_their_mean():
    compare(Images(), torch.randn(8, 3, 64, 64), pieces=2)


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
    assert min(ours) < 0.7 * eager
