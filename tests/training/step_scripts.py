# tests/training/step_scripts.py
"""Training steps, the batches they are given, and what is compared of ours and eager's."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import torchbolt


def net(drop=0.0):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(drop), nn.Linear(32, 4))


def stepping(model, opt, zero="first", none=True, clip=None):
    def step(x, y):
        if zero == "first":
            opt.zero_grad(set_to_none=none)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = clip(model.parameters()) if clip else None
        opt.step()
        if zero == "last":
            opt.zero_grad(set_to_none=none)
        return loss.detach(), norm

    return step


def sgd_with_momentum():
    model = net()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    return stepping(model, opt), (model, opt)


def loss_with_its_history():
    model = net()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        opt.step()
        return loss, out.argmax(-1).eq(y).float().mean()

    return step, (model, opt)


def scheduled(make_schedule, optimizer=torch.optim.AdamW):
    model = net()
    opt = optimizer(model.parameters(), 0.01)
    schedule = make_schedule(opt)
    inner = stepping(model, opt)

    def step(x, y):
        loss = inner(x, y)
        schedule.step()
        return loss

    return step, (model, opt)


def batches(n, size=8):
    draw = torch.Generator().manual_seed(0)
    for _ in range(n):
        yield torch.randn(size, 16, generator=draw), torch.randint(0, 4, (size,), generator=draw)


def state_of(parts):
    tensors = []
    for part in parts:
        if isinstance(part, nn.Module):
            tensors += [*part.parameters(), *part.buffers(), *(p.grad for p in part.parameters())]
        else:
            tensors += pytree.tree_leaves(part.state_dict())
    return [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in tensors]


def train(make, wrap, steps=10):
    step, parts = make()
    step = wrap(step)
    torch.manual_seed(5)
    results = [
        pytree.tree_map(lambda t: getattr(t, "grad_fn", None) is not None and t.detach() or t, step(x, y))
        for x, y in batches(steps)
    ]
    return results, state_of(parts), torch.get_rng_state()


def assert_same(ours, eager):
    torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5)


def compared(make, steps=6):
    """Runs both and gives what stats() says of ours."""
    eager = train(make, lambda step: step, steps)
    torchbolt.reset()
    assert_same(train(make, torchbolt.compile, steps), eager)
    return torchbolt.stats()


def recorded_after(n, make, steps):
    """How many recordings there are after the first n steps."""
    step, _ = make()
    step = torchbolt.compile(step)
    for i, (x, y) in enumerate(batches(steps, 16)):
        if i == n:
            before = torchbolt.stats()["recordings"]
        step(x, y)
    return torchbolt.stats()["recordings"] - before
