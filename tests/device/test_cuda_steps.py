# tests/device/test_cuda_steps.py
"""Whole training steps on CUDA: what they leave is eager's, and each is one region. Needs a CUDA device."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(100, 32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32)
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 100)

    def forward(self, ids):
        x = self.tokens(ids)
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, w))
        return self.head(x + self.down(F.gelu(self.up(x))))


# The sign of a gradient that is nothing but rounding does not decide where a step goes.
adamw = functools.partial(torch.optim.AdamW, eps=1e-3)


def loss_of(model, ids):
    return F.cross_entropy(model(ids)[:, :-1].reshape(-1, 100), ids[:, 1:].reshape(-1))


def stepping(optimizer, clip=False, accumulate=1, autocast=None, keeps=False, scaled=False):
    torch.manual_seed(1)
    model = Net().cuda()
    opt = optimizer(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=3, enabled=scaled)

    def step(ids):
        if keeps:
            opt.zero_grad()
        total = 0.0
        for part in ids.chunk(accumulate):
            with torch.autocast("cuda", dtype=autocast, enabled=autocast is not None):
                loss = loss_of(model, part) / accumulate
            scaler.scale(loss).backward()
            total = total + loss.detach()
        if clip:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        if not keeps:
            opt.zero_grad()
        return total

    return step, model, opt


STEPS = {
    "sgd": functools.partial(stepping, torch.optim.SGD),
    "sgd_momentum": functools.partial(stepping, functools.partial(torch.optim.SGD, momentum=0.9)),
    "adamw": functools.partial(stepping, adamw),
    "adamw_single": functools.partial(stepping, functools.partial(adamw, foreach=False)),
    "adamw_capturable": functools.partial(stepping, functools.partial(adamw, capturable=True)),
    "clipped": functools.partial(stepping, adamw, clip=True),
    "accumulated": functools.partial(stepping, adamw, accumulate=4),
    "gradients_stay": functools.partial(stepping, adamw, keeps=True),
    "bf16": functools.partial(stepping, adamw, clip=True, autocast=torch.bfloat16),
    "f16_scaled": functools.partial(stepping, adamw, clip=True, autocast=torch.float16, scaled=True),
}


def train(make, wrap, n=5):
    step, model, opt = make()
    step = wrap(step)
    draw = torch.Generator(device="cuda").manual_seed(0)
    losses = [step(torch.randint(100, (8, 16), device="cuda", generator=draw)) for _ in range(n)]
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    moments = [s for state in opt.state.values() for s in state.values() if isinstance(s, torch.Tensor)]
    return torch.stack(losses), [p.detach().clone() for p in model.parameters()], gradients, moments


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_one_region(name):
    want = train(STEPS[name], lambda step: step)
    torchbolt.reset()
    got = train(STEPS[name], torchbolt.compile)
    loose = 3e-2 if name in ("bf16", "f16_scaled") else 2e-3
    for part, a, b in zip(("losses", "parameters", "gradients", "optimizer"), got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=loose, atol=loose, msg=lambda text, part=part: f"{part}: {text}")
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"]) == (0, 0), stats


@pytest.mark.parametrize("name", ["sgd", "adamw", "clipped"])
def test_gradients_are_as_near_to_doubles_as_eagers(name):
    """After one step of SGD with a rate of 1 the parameters tell the gradients."""

    def after(wrap, dtype):
        torch.manual_seed(1)
        model = Net().cuda().to(dtype)
        opt = torch.optim.SGD(model.parameters(), lr=1.0)

        def step(ids):
            opt.zero_grad()
            loss_of(model, ids).backward()
            if name == "clipped":
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()

        step = wrap(step)
        for i in range(2):  # the second is a compiled call
            step((torch.arange(64, device="cuda").view(4, 16) * (i + 3)) % 100)
        return [p.grad for p in model.parameters()]

    exact = after(lambda step: step, torch.float64)
    eager = after(lambda step: step, torch.float32)
    ours = after(torchbolt.compile, torch.float32)
    for a, b, c in zip(ours, eager, exact, strict=True):
        scale = c.abs().max() * torch.finfo(torch.float32).eps * 4
        assert (a.double() - c).abs().max() <= 2 * (b.double() - c).abs().max() + scale


def test_another_stream_is_left_to_the_engine():
    """Its nodes would run on the stream of their forward pass."""
    torch.manual_seed(1)
    model, side = Net().cuda(), torch.cuda.Stream()

    def step(ids):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loss = loss_of(model, ids)
        torch.cuda.current_stream().wait_stream(side)
        loss.backward()
        found = [p.grad for p in model.parameters()]
        model.zero_grad()
        return found

    compiled = torchbolt.compile(step)
    ids = torch.randint(100, (8, 16), device="cuda")
    want = step(ids)
    for _ in range(3):
        torch.testing.assert_close(compiled(ids), want, rtol=1e-3, atol=1e-4)


def test_hooks_and_a_skipped_step():
    def run(wrap):
        torch.manual_seed(1)
        model = Net().cuda()
        opt = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cuda", init_scale=64.0, growth_interval=100)
        seen = []

        def step(ids, factor):
            opt.zero_grad()
            scaler.scale(loss_of(model, ids) * factor).backward()
            scaler.step(opt)
            scaler.update()

        step = wrap(step)
        ids, one, inf = torch.randint(100, (8, 16), device="cuda"), *torch.tensor([1.0, float("inf")], device="cuda")
        for i in range(9):
            if i == 5:
                handle = model.head.weight.register_hook(lambda g: seen.append(1) or g * 2)
            if i == 7:
                handle.remove()
            step(ids, inf if i == 3 else one)
        return [p.detach().clone() for p in model.parameters()], scaler.get_scale(), len(seen)

    torch.manual_seed(7)
    want = run(lambda step: step)
    torch.manual_seed(7)
    got = run(torchbolt.compile)
    assert got[1:] == want[1:]
    torch.testing.assert_close(got[0], want[0], rtol=2e-3, atol=2e-3)


def test_memory_of_a_whole_step_is_no_more_than_eagers():
    def peak(wrap):
        torch.manual_seed(1)
        model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(12)]).cuda()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step(x):
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()

        step, x = wrap(step), torch.randn(256, 1024, device="cuda")
        for _ in range(4):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            step(x)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    eager = peak(lambda step: step)
    assert peak(torchbolt.compile) <= 1.02 * eager


def test_no_memory_leaves_a_step_undone():
    torch.manual_seed(1)
    model = Net().cuda()
    model.drop = nn.Dropout(0.1)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(ids):
        opt.zero_grad()
        model.drop(model(ids)).logsumexp(-1).mean().backward()
        opt.step()

    step = torchbolt.compile(step, dynamic=False)
    ids = torch.randint(100, (64, 512), device="cuda")
    for _ in range(4):
        step(ids)

    def state():
        tensors = [*model.parameters(), *(s for each in opt.state.values() for s in each.values())]
        return [t.detach().clone() for t in tensors], torch.cuda.get_rng_state()

    before = state()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    used = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((used + (4 << 20)) / total)
    held = []  # what the tests before this one have left free in memory that torch holds
    try:
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            while True:
                held.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda"))
        del held[-2:]
        with pytest.raises(torch.cuda.OutOfMemoryError):
            step(ids)
        torch.testing.assert_close(state(), before, rtol=0, atol=0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    step(ids)
