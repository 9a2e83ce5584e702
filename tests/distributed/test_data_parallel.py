# tests/distributed/test_data_parallel.py
"""DistributedDataParallel around, inside and under what is compiled: parameters and losses are eager's."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from ranks import device
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

import torchbolt

STEPS = 4


class Model(nn.Module):
    def __init__(self, width=16, layers=4, batch_norm=False):
        super().__init__()
        self.first = nn.Linear(8, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norm = nn.BatchNorm1d(width) if batch_norm else nn.LayerNorm(width)
        self.last = nn.Linear(width, 4)
        self.other = nn.Linear(width, 4)

    def forward(self, x, other=False):
        x = self.first(x)
        for block in self.blocks:
            x = x + F.gelu(block(x))
        x = self.norm(x)
        return self.other(x) if other else self.last(x)


class Used(Model):
    def __init__(self, **options):
        super().__init__(**options)
        del self.other


SMALL = {"bucket_cap_mb": 0.002}  # several buckets


def ddp(model, **options):
    ids = [torch.cuda.current_device()] if device().type == "cuda" else None
    return DDP(model, device_ids=ids, **SMALL, **options)


def batches(count=STEPS, rows=6):
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(count):
        x = torch.randn(rows, 8, generator=generator)
        yield x.to(device()), (torch.arange(rows) % 4).to(device())


def plain(f):
    return f


WHERE = ("inside", "around", "step")


def run(where, compiled, model=Used, model_options=(), hook=None, **options):
    """Losses and parameters of a training, compiled `where`."""
    torch.manual_seed(0)
    module = model(**dict(model_options)).to(device())
    if where == "inside":
        module = compiled(module)
    module = ddp(module, **options)
    if hook:
        module.register_comm_hook(None, hook)
    whole = module
    if where == "around":
        whole = compiled(whole)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)

    def step(x, y):
        loss = F.cross_entropy(whole(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    if where == "step":
        step = compiled(step)
    losses = [step(x, y).item() for x, y in batches()]
    return losses, [p.detach().clone() for p in module.parameters()], [b.clone() for b in module.buffers()]


def compare(where, **kwargs):
    expected = run("", plain, **kwargs)
    torchbolt.reset()
    given = run(where, torchbolt.compile, **kwargs)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
    return counted()


def counted():
    stats = torchbolt.stats()
    return tuple([stats[k] for k in ("regions", "graph_breaks", "eager_fallbacks")])


CASES = {
    "plain": {},
    "static_graph": {"static_graph": True},
    "bucket_views": {"gradient_as_bucket_view": True},
    "batch_norm": {"model_options": {"batch_norm": True}},
    "compressed": {"hook": default_hooks.fp16_compress_hook},
    "unused": {"model": Model, "find_unused_parameters": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("where", WHERE)
def test_training(two, where, case):
    """Nothing ends a region but what speaks to the reducer before and behind the module, and the backward pass."""
    for regions, ends, fallbacks in two(compare, where, **CASES[case]):
        assert fallbacks == 0
        if where == "inside":
            assert (regions, ends) == (1, 0)
        elif where == "around":
            assert (regions, ends) == (1, 2)
        else:
            assert ends <= 4


def test_three_ranks(three):
    assert three(compare, "inside") == [(1, 0, 0)] * 3


# ---- what is around the loop


def accumulated(compiled):
    torch.manual_seed(0)
    module = ddp(compiled(Used().to(device())))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses, between = [], []
    for i, (x, y) in enumerate(batches(6)):
        with module.no_sync() if i % 3 else contextlib.nullcontext():
            loss = F.cross_entropy(module(x), y)
            loss.backward()
        losses.append(loss.item())
        between.append([p.grad.clone() for p in module.parameters()])
        if i % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
    return losses, between, [p.detach().clone() for p in module.parameters()]


def uneven(compiled):
    torch.manual_seed(0)
    module = ddp(compiled(Used().to(device())))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    with module.join():
        for x, y in batches(3 + 2 * dist.get_rank()):
            loss = F.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, [p.detach().clone() for p in module.parameters()]


def last_batch_smaller(compiled):
    torch.manual_seed(0)
    module = ddp(compiled(Used().to(device())))
    losses = []
    for rows in (6, 6, 3 + dist.get_rank(), 6, 5, 2 + 2 * dist.get_rank(), 6):
        ((x, y),) = batches(1, rows)
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        losses.append(loss.item())
    return losses, [p.grad for p in module.parameters()]


LOOPS = {f.__name__: f for f in (accumulated, uneven, last_batch_smaller)}


def as_eager(name):
    expected = LOOPS[name](plain)
    torchbolt.reset()
    torch.testing.assert_close(LOOPS[name](torchbolt.compile), expected, rtol=1e-4, atol=1e-5)
    return counted()


@pytest.mark.parametrize("name", LOOPS)
def test_loops(two, name):
    for _, ends, fallbacks in two(as_eager, name):
        assert (ends, fallbacks) == (0, 0)


def overlap(where):
    torch.manual_seed(0)
    model = Used(layers=8).to(device())
    events = []
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: events.append(name))
    module = ddp(torchbolt.compile(model) if where == "inside" else model)

    def hook(state, bucket):
        events.append(bucket.index())
        return default_hooks.allreduce_hook(None, bucket)

    module.register_comm_hook(None, hook)
    whole = torchbolt.compile(module) if where == "around" else module
    for x, y in batches(4):
        events.clear()
        F.cross_entropy(whole(x), y).backward()
    return events


@pytest.mark.parametrize("where", ["inside", "around"])
def test_buckets_are_sent_before_the_last_gradient(two, where):
    """One after another while the backward pass runs, and on all ranks in the same order."""
    first, second = two(overlap, where)
    assert first == second
    buckets = [event for event in first if isinstance(event, int)]
    assert len(buckets) >= 3 and buckets == sorted(buckets)
    assert first.index(0) < first.index("blocks.0.weight") < first.index("first.weight")
