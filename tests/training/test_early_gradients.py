# tests/training/test_early_gradients.py
"""Gradients reach their parameters while the backward pass runs, where somebody waits for them."""

import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


def deep(width=32, layers=8):
    return nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())))


def test_hooks_run_before_the_last_kernel():
    model = deep()
    order = []
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: order.append(name))
    fast = torchbolt.compile(model)
    for _ in range(3):
        x = torch.randn(4, 32, requires_grad=True)
        x.register_hook(lambda g: order.append("the input"))
        order.clear()
        fast(x).sum().backward()
        assert sorted(order) == sorted(["the input", *(name for name, _ in model.named_parameters())])
    # A node ran between them: those of the last layers came first.
    early = [int(name.split(".")[0]) for name in order if name != "the input"]
    assert min(early[:4]) > max(early[-4:])
    stats = torchbolt.stats()
    assert (stats["regions"], stats["graph_breaks"], stats["eager_fallbacks"]) == (1, 0, 0)


def test_the_backward_pass_goes_on_behind_a_hook():
    """What a hook of a late layer does to an early layer's weight is seen: the kernels that read it have not run."""
    model = deep()
    seen = {}

    def hook(p):
        seen["first weight has a gradient"] = model[0].weight.grad is not None

    model[14].weight.register_post_accumulate_grad_hook(hook)
    model[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    fast = torchbolt.compile(model)
    for _ in range(2):
        for p in model.parameters():
            p.grad = None
        fast(torch.randn(4, 32)).sum().backward()
        assert seen.pop("first weight has a gradient") is False


def test_without_hooks_it_is_one_piece():
    model = deep()
    fast = torchbolt.compile(model)
    fast(torch.randn(4, 32))
    loss = fast(torch.randn(4, 32)).sum()
    assert {type(f).__name__ for f, _ in loss.grad_fn.next_functions[0][0].next_functions} == {"AccumulateGrad"}


def test_gradients_are_eagers():
    def gradients(compiled):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.2), deep(32, 3), nn.Linear(32, 4)
        )
        seen = []
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.norm()))
        fast = compiled(model)
        for _ in range(3):
            F.cross_entropy(fast(torch.randn(6, 16)), torch.arange(6) % 4).backward()
        return [p.grad for p in model.parameters()], len(seen)

    (ours, count), (eagers, expected) = gradients(torchbolt.compile), gradients(lambda m: m)
    assert count == expected
    torch.testing.assert_close(ours, eagers)


def test_buckets_are_sent_in_order():
    """As DistributedDataParallel does it: hooks behind AccumulateGrad, a bucket is sent when all of it is there."""
    model = deep()
    names = [name for name, _ in model.named_parameters()]
    buckets = [set(names[i : i + 4]) for i in range(0, len(names), 4)]
    sent, held = [], []

    def ready(name):
        for i, bucket in enumerate(buckets):
            bucket.discard(name)
            if not bucket and i not in sent:
                sent.append(i)

    for name, p in model.named_parameters():
        accumulator = p.view_as(p).grad_fn.next_functions[0][0]
        accumulator.register_hook(lambda *_, name=name: ready(name))
        held.append(accumulator)
    torchbolt.compile(model)(torch.randn(4, 32)).sum().backward()
    assert sent == [3, 2, 1, 0]


def test_gradients_are_taken_over_without_a_copy():
    model = deep(16, 3)
    given = {}
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: given.__setitem__(name, g.data_ptr()))
    fast = torchbolt.compile(model)
    for _ in range(2):
        for p in model.parameters():
            p.grad = None
        fast(torch.randn(4, 16)).sum().backward()
        for name, p in model.named_parameters():
            assert p.grad.data_ptr() == given[name] and p.grad.stride() == p.stride() and p.grad._base is None


def test_accumulation_without_hooks_steals():
    """No hook looks on: what a step gives is the parameter's gradient, and no buffer more is allocated."""
    model = deep(64, 3)
    fast = torchbolt.compile(model)
    x = torch.randn(4, 64)
    fast(x).sum().backward()
    for p in model.parameters():
        p.grad = None
    result = fast(x)
    with torch.profiler.profile(profile_memory=True) as profile:
        result.backward(torch.ones(4, 64))
    copies = [e for e in profile.events() if e.name in ("aten::clone", "aten::copy_", "aten::contiguous")]
    assert not copies
