# tests/training/test_selective_checkpoints.py
"""Selective checkpoints inside compiled functions keep what their policy says, and nothing else."""

import functools

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import torchbolt

aten = torch.ops.aten
ROWS, WIDTH = 64, 8


def block(x, w, v):
    return ((x @ w).sigmoid() @ v).tanh().square() @ w


def saving(*operators):
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op in operators else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def kept_by(policy, fn=block, **options):
    """How many activations a compiled checkpoint of fn keeps, beside what it is called with; gradients are eager's."""
    if policy is not None:
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, policy)

    def run(x, w, v):
        return checkpoint(fn, x, w, v, use_reentrant=False, **options).cos()

    torchbolt.reset()
    fast = torchbolt.compile(run)
    x, w, v = (torch.randn(*sizes, requires_grad=True) for sizes in ((ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH)))
    want = torch.autograd.grad(fn(x, w, v).cos().sum(), (x, w, v))
    for _ in range(2):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            loss = fast(x, w, v).sum()
        torch.testing.assert_close(torch.autograd.grad(loss, (x, w, v)), want, rtol=1e-4, atol=1e-5)
    stats = torchbolt.stats()
    assert (stats["regions"], stats["graph_breaks"], stats["eager_fallbacks"]) == (1, 0, 0)
    inputs = {t.data_ptr() for t in (x, w, v)}
    return len({t.data_ptr() for t in kept if t.numel() == ROWS * WIDTH} - inputs)


def test_what_is_to_be_saved_is():
    plain = kept_by(None)
    assert kept_by(saving()) == plain
    assert kept_by(saving(aten.mm.default)) == plain + 2  # the last product is what the checkpoint gives
    assert kept_by([aten.mm.default]) == plain + 2
    assert kept_by(saving(aten.sigmoid.default)) == plain + 1


def test_a_policy_that_counts():
    """Every second product, as large models have it; a new count for each call."""

    def contexts():
        count = [0]

        def policy(ctx, op, *args, **kwargs):
            if op != aten.mm.default:
                return CheckpointPolicy.PREFER_RECOMPUTE
            assert len(args) == 2 and args[0].shape == (ROWS, WIDTH)
            count[0] += 1
            return CheckpointPolicy.MUST_SAVE if count[0] % 2 else CheckpointPolicy.MUST_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    plain = kept_by(None)
    x, w, v = (torch.randn(*sizes, requires_grad=True) for sizes in ((ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH)))
    fast = torchbolt.compile(lambda x: checkpoint(block, x, w, v, use_reentrant=False, context_fn=contexts).cos())
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        fast(x)
        kept.clear()
        fast(x).sum().backward()
    assert len({t.data_ptr() for t in kept if t.numel() == ROWS * WIDTH and t is not x} - {x.data_ptr()}) == plain + 1


def test_nested():
    def outer(x, w, v):
        inner = checkpoint(block, x, w, v, use_reentrant=False, context_fn=functools.partial(
            create_selective_checkpoint_contexts, [aten.mm.default]))  # fmt: skip
        return inner.sin() @ v

    assert kept_by(None, outer) == kept_by(saving(), outer)  # the outer one makes all of it again
    assert kept_by([aten.mm.default], outer) > kept_by(None, outer)


def test_other_contexts_are_entered():
    from contextlib import nullcontext

    entered = []

    class Context:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *error):
            pass

    x, w, v = (torch.randn(*sizes, requires_grad=True) for sizes in ((ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH)))
    fast = torchbolt.compile(
        lambda x: checkpoint(block, x, w, v, use_reentrant=False, context_fn=lambda: (nullcontext(), Context())).sum()
    )
    for times in (1, 2):
        fast(x).backward()
        assert len(entered) == times
