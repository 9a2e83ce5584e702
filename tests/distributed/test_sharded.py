# tests/distributed/test_sharded.py
"""Parameters in shares: fully_shard, FullyShardedDataParallel, tensor parallelism, ZeroRedundancyOptimizer."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from ranks import device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import torchbolt


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def plain(f):
    return f


def whole_of(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def batch(seed, width=8, same=False):
    generator = torch.Generator().manual_seed(seed if same else 10 * seed + dist.get_rank())
    return torch.randn(6, width, generator=generator).to(device())


def mesh():
    return init_device_mesh(device().type, (dist.get_world_size(),))


def fully_sharded(how, compiled, **options):
    model = Net().to(device())
    if how == "compiled blocks":
        for i, block in enumerate(model.blocks):
            model.blocks[i] = compiled(block)
    if how == "compiled forward":
        for block in model.blocks:
            block.forward = compiled(block.forward)
    for block in model.blocks:
        fully_shard(block, mesh=mesh(), **options)
    fully_shard(model, mesh=mesh(), **options)
    if how == "blocks of a sharded model":
        for i, block in enumerate(model.blocks):
            model.blocks[i] = compiled(block)
    return model, compiled(model) if how == "the whole" else model


def trained(model, whole, steps=5, step_of=plain):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = step_of(optimizer.step)
    out = []
    for seed in range(steps):
        loss = F.cross_entropy(whole(batch(seed)), torch.arange(6, device=device()) % 4)
        loss.backward()
        out.append(whole_of(nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        step()
        optimizer.zero_grad()
        out.append(loss.detach())
        model.eval()
        with torch.no_grad():  # what was folded of the weights is of no use any more
            out.append(whole(batch(seed)))
        model.train()
    return out


def fsdp2(how, compiled, **options):
    torch.manual_seed(0)
    model, whole = fully_sharded(how, compiled, **options)
    out = trained(model, whole)
    for module in model.modules():
        if isinstance(module, FSDPModule) and not hasattr(type(module), "_torchbolt_class"):
            module.reshard()
    return out, [whole_of(p) for p in model.parameters()]


def as_eager(run, *args, rtol=1e-4, atol=1e-5):
    expected = globals()[run](*args, plain)
    torchbolt.reset()
    torch.testing.assert_close(globals()[run](*args, torchbolt.compile), expected, rtol=rtol, atol=atol)
    stats = torchbolt.stats()
    return tuple([stats[k] for k in ("regions", "graph_breaks", "eager_fallbacks")])


@pytest.mark.parametrize("how", ["compiled blocks", "compiled forward", "blocks of a sharded model", "the whole"])
def test_fully_shard(two, how):
    for regions, ends, fallbacks in two(as_eager, "fsdp2", how):
        assert regions >= 6 and fallbacks == 0
        if how == "compiled forward":
            assert ends == 0


def half_precision(compiled):
    return fsdp2("compiled forward", compiled, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))


def test_fully_shard_in_bfloat16(two):
    for _, ends, fallbacks in two(as_eager, "half_precision", rtol=5e-2, atol=5e-2):
        assert (ends, fallbacks) == (0, 0)


def fsdp1(compiled):
    torch.manual_seed(0)
    model = FullyShardedDataParallel(
        Net().to(device()),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        use_orig_params=True,
        device_id=device() if device().type == "cpu" else None,
    )
    whole = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    out = []
    for seed in range(5):
        loss = F.cross_entropy(whole(batch(seed)), torch.arange(6, device=device()) % 4)
        loss.backward()
        out.append(model.clip_grad_norm_(0.1))
        optimizer.step()
        optimizer.zero_grad()
        out.append(loss.detach())
    return out, [whole_of(p) for p in model.parameters()]


def test_fully_sharded_data_parallel(two):
    """Its own road through parameters' memory is not told that somebody compiles, and runs between regions."""
    for regions, _, fallbacks in two(as_eager, "fsdp1"):
        assert regions >= 3 and fallbacks == 0


def tensor_parallel(compiled):
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).to(device())
    for block in model:
        parallelize_module(block, mesh(), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    whole = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    out = []
    for seed in range(4):
        loss = whole(batch(seed, 16, same=True)).square().mean()
        loss.backward()
        split = [p for p in model.parameters() if isinstance(p, DTensor)]
        out.append(whole_of(nn.utils.clip_grad_norm_(split, 0.5)))
        optimizer.step()
        optimizer.zero_grad()
        out.append(loss.detach())
    return out, [whole_of(p) for p in model.parameters()]


def test_tensor_parallel(two):
    """Distributed tensors are eager's; what lies between them is compiled."""
    for regions, _, fallbacks in two(as_eager, "tensor_parallel"):
        assert regions >= 1 and fallbacks == 0


def zero_redundancy(compiled_part, compiled):
    torch.manual_seed(0)
    model = DistributedDataParallel(Net().to(device()))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    whole = compiled(model) if compiled_part == "model" else model
    step = compiled(optimizer.step) if compiled_part == "optimizer" else optimizer.step
    losses = []
    for seed in range(5):
        loss = whole(batch(seed)).square().mean()
        loss.backward()
        step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, [whole_of(p) for p in model.parameters()]


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_zero_redundancy_optimizer(two, part):
    for regions, _, fallbacks in two(as_eager, "zero_redundancy", part):
        assert regions >= 1 and fallbacks == 0
