# tests/distributed/test_collectives.py
"""Collectives in compiled functions: their results are eager's, in eager's order, and each is made once."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from ranks import device
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchbolt


def mine(*sizes, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    return torch.randn(*sizes, generator=generator).to(device())


GATHER = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # older versions have one name for each
SCATTER = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def counted():
    stats = torchbolt.stats()
    return tuple([stats[k] for k in ("regions", "graph_breaks", "eager_fallbacks")])


def same(f, make, calls=4):
    """Results, and what was done to the arguments, are eager's."""
    fast = torchbolt.compile(f)
    for seed in range(calls):
        ours, eagers = make(seed), make(seed)
        torch.testing.assert_close(fast(*ours), f(*eagers))
        torch.testing.assert_close(ours, eagers)
    return counted()


def all_reduced(x):
    y = x.sin() * 2
    dist.all_reduce(y)
    return y.cos() + 1


def gathered(x):
    y = x * 2
    whole = torch.empty(dist.get_world_size() * y.size(0), y.size(1), device=y.device)
    GATHER(whole, y)
    return whole.relu().sum(0)


def scattered(x):
    y = x.repeat(dist.get_world_size(), 1) * 3
    part = torch.empty_like(x)
    SCATTER(part, y)
    return part + 1


def broadcast(x):
    y = x + dist.get_rank()
    dist.broadcast(y, 1)
    return y * y


def averaged(x):
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return x / dist.get_world_size()


def of_input_twice(x):
    dist.all_reduce(x)
    y = x.exp()
    dist.all_reduce(y)
    x += y
    return x.sum()


def functional_all_reduce(x):
    y = functional.all_reduce(x.sin(), "sum", dist.group.WORLD)
    return y.cos()


def functional_gather(x):
    return functional.all_gather_tensor(x * 2, 1, dist.group.WORLD).relu()


def functional_scatter(x):
    return functional.reduce_scatter_tensor(x.repeat(2, 1), "sum", 0, dist.group.WORLD) * 2


def overlapped(x):
    y = x.sin()
    under_way = torch.ops._c10d_functional.all_gather_into_tensor(y, dist.get_world_size(), "0")
    z = (x.cos() + y).exp() @ x.t()
    z = (z * 2).tanh().sum(0)
    return torch.ops._c10d_functional.wait_tensor(under_way).sum() + z


def dead_result(x):
    functional.all_reduce(x, "sum", dist.group.WORLD)
    return x + 1


def twice_the_same(x):
    return functional.all_reduce(x, "sum", dist.group.WORLD) + functional.all_reduce(x, "sum", dist.group.WORLD)


def of_changing_size(x):
    return functional.all_reduce(x * 2, "sum", dist.group.WORLD).sum(1)


WHOLE = [
    all_reduced, gathered, scattered, broadcast, averaged, of_input_twice, functional_all_reduce, functional_gather,
    functional_scatter, overlapped, dead_result, twice_the_same,
]  # fmt: skip


def one(name):
    return same(globals()[name], lambda seed: (mine(4, 3, seed=seed),))


@pytest.mark.parametrize("name", [f.__name__ for f in WHOLE])
def test_one_region(two, name):
    assert two(one, name) == [(1, 0, 0)] * 2


def changing_sizes():
    return same(of_changing_size, lambda seed: (mine(3 + seed, 3, seed=seed),))


def test_sizes_that_change(three):
    """No size is found out by trying a collective that nobody else takes part in."""
    for regions, ends, fallbacks in three(changing_sizes):
        assert regions <= 2 and (ends, fallbacks) == (0, 0)


def with_work(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x.sin()
    work.wait()
    return y + z


def with_barrier(x):
    y = x + 1
    dist.barrier()
    return y * 2


def with_list(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x * 2)
    return torch.cat(parts).sum(0)


def sent(x):
    y = x * 2
    got = torch.empty_like(x)
    if dist.get_rank() == 0:
        dist.send(y, 1)
        dist.recv(got, 1)
    else:
        dist.recv(got, 0)
        dist.send(y, 0)
    return got + y


@pytest.mark.parametrize("name", [f.__name__ for f in (with_work, with_barrier, with_list, sent)])
def test_between_regions(two, name):
    """What gives a Work, or waits for others without a tensor, ends a region, and nothing is eager for that."""
    for regions, ends, fallbacks in two(one, name):
        assert regions >= 2 and ends >= 1 and fallbacks == 0


def known_places(x):
    return x * dist.get_rank() + dist.get_world_size()


def test_rank_and_size_are_known(two):
    assert two(one, "known_places") == [(1, 0, 0)] * 2


# ---- gradients


class Parallel(nn.Module):
    """A product that is split over its inner dimension, as Megatron has it."""

    def __init__(self, checkpointed):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 4)
        self.checkpointed = checkpointed

    def reduced(self, x):
        y = torch.ops._c10d_functional.all_reduce(F.gelu(self.first(x)), "sum", dist.group.WORLD.group_name)
        return torch.ops._c10d_functional.wait_tensor(y)

    def forward(self, x):
        y = checkpoint(self.reduced, x, use_reentrant=False) if self.checkpointed else self.reduced(x)
        return self.last(y).square().mean()


def train(compiled, checkpointed):
    torch.manual_seed(0)
    model = Parallel(checkpointed).to(device())
    step = compiled(model)
    losses = []
    for seed in range(4):
        loss = step(mine(5, 4, seed=seed))
        loss.backward()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()]


def gradients(checkpointed):
    torch.testing.assert_close(train(torchbolt.compile, checkpointed), train(lambda f: f, checkpointed))
    return counted()


def made_in_a_step(checkpointed):
    step = torchbolt.compile(Parallel(checkpointed).to(device()))
    step(mine(5, 4)).backward()
    with torch.profiler.profile() as profile:
        step(mine(5, 4)).backward()
    return sum(e.name == "torchbolt::_c10d_functional::all_reduce" for e in profile.events())


@pytest.mark.parametrize("checkpointed", [False, True])
def test_gradients(two, checkpointed):
    for regions, _, fallbacks in two(gradients, checkpointed):
        assert regions >= 1 and fallbacks == 0


@pytest.mark.parametrize("checkpointed", [False, True])
def test_none_is_made_again(two, checkpointed):
    """One in each direction."""
    assert two(made_in_a_step, checkpointed) == [2, 2]


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Megatron(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16, bias=False)

    def forward(self, x):
        return Reduced.apply(self.down(F.gelu(self.up(Copied.apply(x)))))


def train_functions(compiled):
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(Megatron(), Megatron()).to(device())
    step = compiled(model)
    losses = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        loss = step(torch.randn(4, 16, generator=generator).to(device())).square().mean()
        loss.backward()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()]


def functions():
    torch.testing.assert_close(train_functions(torchbolt.compile), train_functions(lambda f: f))
    return counted()


def test_backward_passes_that_communicate(two):
    """They are never run on tensors without memory, to see what they do."""
    for _, _, fallbacks in two(functions):
        assert fallbacks == 0


# ---- errors

TABLE = torch.randn(4, 3)


def looked_up(x):
    y = x * 2
    dist.all_reduce(y)
    return F.embedding(y.round().long(), TABLE.to(x.device)).sum()


def error_behind():
    fast = torchbolt.compile(looked_up)
    x = torch.tensor([0.0, 0.25], device=device())
    for _ in range(3):
        fast(x)
    said = ""
    if device().type == "cpu":  # a device would be of no use any more
        with pytest.raises(IndexError, match="index out of range in self") as raised:
            fast(x * 100)
        said = str(raised.value)
    after = torch.ones(1, device=device())
    dist.all_reduce(after)
    return bool(said) or device().type != "cpu", after.item(), counted()


def test_what_raises_behind_a_collective(two):
    """It raises, and eager makes no second collective of it, which the others would take for their next one."""
    assert two(error_behind) == [(True, 2.0, (1, 0, 0))] * 2


def only_one_raises(x, fails):
    y = x.sin()
    if fails:
        raise ValueError("this rank has enough")
    return y


def error_of_one():
    fast = torchbolt.compile(only_one_raises)
    x = mine(3)
    fast(x, False)
    try:
        fast(x, dist.get_rank() == 1)
    except ValueError as error:
        return str(error)
    return "nothing"


def test_one_rank_raises(two):
    assert two(error_of_one) == ["nothing", "this rank has enough"]
