# tests/device/test_cuda_lists.py
"""Operators over lists of CUDA tensors: equal to eager, in few launches, at the speed of memory. Needs a CUDA device.

Times are printed (pytest -s): AdamW beside a copy of the same bytes, and what a step costs the host.
"""

from __future__ import annotations

import statistics
import time

import pytest
import torch

import torchbolt

MIXED = [(64, 32), (32,), (7, 5), (1,), (128, 128), (1000,), (3, 3, 3), ()]


def parameters(sizes):
    made = [torch.randn(s, device="cuda").requires_grad_() for s in sizes]
    for p in made:
        p.grad = torch.randn_like(p)
    return made


def steps(wrap, name, sizes, count=4, **options):
    torch.manual_seed(0)
    made = parameters(sizes)
    opt = getattr(torch.optim, name)(made, lr=1e-2, **options)
    step = wrap(opt.step)
    draw = torch.Generator("cuda").manual_seed(1)
    for _ in range(count):
        for p in made:
            p.grad = torch.randn(p.shape, device="cuda", generator=draw)
        step()
    states = [v for s in opt.state_dict()["state"].values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [p.detach() for p in made], states


CASES = [
    ("AdamW", {}),
    ("AdamW", {"fused": True}),
    ("AdamW", {"fused": True, "amsgrad": True, "maximize": True}),
    ("AdamW", {"foreach": True, "capturable": True}),
    ("Adam", {"foreach": True, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"fused": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"momentum": 0.9, "fused": True, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adagrad", {"foreach": True}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("Rprop", {}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o) or 'plain'}" for n, o in CASES])
def test_optimizers(name, options):
    want = steps(lambda fn: fn, name, MIXED, **options)
    got = steps(torchbolt.compile, name, MIXED, **options)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_gradients_are_clipped():
    def run(wrap):
        torch.manual_seed(0)
        made = parameters([*MIXED, (300_000,)])
        clip = wrap(lambda: torch.nn.utils.clip_grad_norm_(made, 0.1))
        return [clip() for _ in range(3)], [p.grad for p in made]

    torch.testing.assert_close(run(torchbolt.compile), run(lambda fn: fn), rtol=1e-4, atol=1e-6)


def test_gradients_are_unscaled():
    def run(wrap, bad):
        grads = [torch.full((n,), 2.0, device="cuda") for n in (5, 1000, 300_000)]
        if bad:
            grads[1][7] = torch.inf
        found, scale = torch.zeros(1, device="cuda"), torch.tensor([0.25], device="cuda")
        wrap(lambda: torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale))()
        return grads, found

    for bad in (False, True):
        torch.testing.assert_close(run(torchbolt.compile, bad), run(lambda fn: fn, bad))


def kernels_of(fn) -> int:
    """How many kernels a call launches."""
    fn()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        fn()
        torch.cuda.synchronize()
    names = [e.name for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return len([n for n in names if not n.startswith("Mem")])


def compiled_step(sizes, **options):
    made = parameters(sizes)
    opt = torch.optim.AdamW(made, lr=1e-3, **options)
    step = torchbolt.compile(opt.step)
    for _ in range(4):
        step()
    return step


@pytest.mark.parametrize(
    "options", [{"fused": True}, {"foreach": True, "capturable": True}], ids=["fused", "capturable"]
)
def test_few_launches(options):
    sizes = [(64 * (i % 9 + 1), 32) if i % 2 else (64 * (i % 9 + 1),) for i in range(150)]
    launches = kernels_of(compiled_step(sizes, **options))
    print(f"AdamW over 150 parameters, {options}: {launches} launches")
    assert launches <= 16, launches


def device_time(fn, times=20) -> float:
    """Milliseconds of one of many calls queued behind a long kernel."""
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(100_000_000)
    begin.record()
    for _ in range(times):
        fn()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times


@pytest.mark.parametrize("options", [{"fused": True}, {}], ids=["fused", "foreach"])
def test_speed_of_memory(options):
    count, elements = 100, 1 << 20
    ours = device_time(compiled_step([(elements,)] * count, **options))
    source = torch.empty(count * elements * 7 // 2, device="cuda")
    target = torch.empty_like(source)
    copy = device_time(lambda: target.copy_(source))
    print(f"AdamW {options} over 100 x 1M: {ours:.3f} ms, a copy of its bytes {copy:.3f} ms: {copy / ours:.2f} of it")


@pytest.mark.parametrize("options", [{"fused": True}, {}], ids=["fused", "foreach"])
def test_time_of_the_host(options):
    sizes = [(64,)] * 150

    def host(step):
        taken = []
        for _ in range(20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            step()
            taken.append(time.perf_counter() - begin)
        return statistics.median(taken) * 1e6

    ours = host(compiled_step(sizes, **options))
    eager = host(torch.optim.AdamW(parameters(sizes), lr=1e-3, **options).step)
    print(f"host time of AdamW {options} over 150 small parameters: {ours:.0f} us, eager {eager:.0f} us")
