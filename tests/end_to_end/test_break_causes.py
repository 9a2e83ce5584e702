"""What ends regions in programs as people write them: eager's results and effects, one recording, truthful reports."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import time
import warnings
import zlib

import numpy as np
import pytest
import torch

import torchbolt

logger = logging.getLogger("torchbolt_tests.causes")
COUNT = 0
CAUSES = {}


def cause(name, ends):
    """`ends`: how many regions end inside; 0 where the call is one region."""

    def add(fn):
        CAUSES[name] = (fn, ends)
        return fn

    return add


@cause("data-dependent if", 1)
def branches(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@cause("print", 0)
def prints(x):
    y = x * 2
    print("half way", y.shape, f"{tuple(y.shape)}")
    return y + 1


@cause("print of a tensor", 0)
def prints_tensors(x):
    y = x * 2
    print("y is", y, f"and {y.sum():.3f}", sep="; ")
    print(f"mean {y.mean().item():.4f}", y.dtype)
    return y + 1


@cause("tolist", 0)
def lists(x):
    y = x * 2
    return y + 1, y.tolist()


@cause("item", 0)
def items(x):
    y = x * 2
    return y * y.sum().item()


@cause("module constructor", 0)
def constructs(x):
    return torch.nn.Linear(4, 2)(x) + torch.nn.ReLU()(x).sum()


@cause("logging", 0)
def logs(x):
    y = x * 2
    logger.info("shape %s at %d", y.shape, 3)
    logger.debug("not shown")
    return y + 1


@cause("warnings", 0)
def warns(x):
    y = x * 2
    warnings.warn("be careful", stacklevel=1)
    return y + 1


@cause("nonzero", 0)  # one if something were computed with it: test_late.py
def finds(x):
    y = x * 2
    return y + 1, (y > 2).nonzero()


@cause("time", 2)
def times(x):
    begin = time.perf_counter()
    y = x * 2
    return y + 1, time.perf_counter() >= begin


@cause("random", 0)
def draws(x):
    y = x * 2
    return y * random.random()


@cause("numpy", 3)
def numbers(x):
    y = x * 2
    return torch.from_numpy(np.sin(y.numpy())) + y


@cause("no_grad", 0)
def without_grad(x):
    with torch.no_grad():
        y = x * 2
    return y + 1


@cause("kwargs", 0)
def keywords(x, **others):
    def inner(y, *, scale=1, **rest):
        return y * scale + rest["shift"]

    return inner(x, **{"scale": 2, "shift": 3, **others})


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@cause("custom autograd.Function", 0)
def custom(x):
    return Double.apply(x + 1) * 3


@cause("C extension", 1)
def extension(x):
    y = x * 2
    return y + zlib.crc32(b"abc") % 7


@cause("global mutation", 0)
def globals_(x):
    global COUNT
    COUNT += 1
    return x * 2 + COUNT % 1


@cause("pdb", 0)
def debugs(x):
    y = x * 2
    breakpoint()
    return y + 1


@cause("dict of tensors", 0)
def dicts(x):
    parts = {"a": x * 2, "b": {"c": x + 1}}
    parts["d"] = parts["a"] + parts["b"]["c"]
    return parts


def hook(*args):
    global COUNT
    COUNT += 100


@contextlib.contextmanager
def everything_shown():
    """One text of everything the user sees, in order."""
    seen = io.StringIO()
    handler = logging.StreamHandler(seen)
    handler.setFormatter(logging.Formatter("%(levelname)s %(funcName)s:%(lineno)d %(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    before = sys.breakpointhook
    sys.breakpointhook = hook
    try:
        with contextlib.redirect_stdout(seen), warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda m, c, file, line, *_: seen.write(f"{c.__name__} {file}:{line} {m}\n")
            yield seen
    finally:
        sys.breakpointhook = before


def run(fn, args):
    """Result, what was shown, and what became of the global, from one starting point."""
    global COUNT
    COUNT = 0
    random.seed(1)
    torch.manual_seed(1)
    with everything_shown() as seen, torch.no_grad():
        result = fn(*args)
    return result, seen.getvalue(), COUNT


@pytest.mark.parametrize("name", CAUSES)
def test_results_effects_and_no_recording_later(name):
    fn, _ = CAUSES[name]
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    inputs = torch.rand(14, 4, generator=torch.Generator().manual_seed(0)) + 0.5
    for round_, x in enumerate(inputs):
        if round_ == 11:
            settled = torchbolt.stats()
        want, got = run(fn, (x.clone(),)), run(compiled, (x.clone(),))
        torch.testing.assert_close(got[0], want[0], rtol=1e-6, atol=1e-6)
        assert got[1] == want[1]
        assert got[2] == want[2]
    stats = torchbolt.stats()
    assert stats["regions"] == settled["regions"] and stats["graph_breaks"] == settled["graph_breaks"]
    assert stats["eager_fallbacks"] == 0


@pytest.mark.parametrize("name", CAUSES)
def test_explain_and_fullgraph_agree(name):
    fn, ends = CAUSES[name]
    torchbolt.reset()
    x = torch.rand(4) + 0.5
    explained = run(torchbolt.explain(fn), (x,))[0]
    assert explained.graph_break_count == ends == torchbolt.stats()["region_ends"], explained
    for reason in explained.break_reasons:
        assert reason.user_stack[0][0] == __file__ and reason.expression in reason.source, reason
        assert reason.hint, reason
    whole = torchbolt.compile(fn, fullgraph=True)
    if ends:
        with pytest.raises(torchbolt.exc.GraphBreak):
            run(whole, (x,))
    else:
        torch.testing.assert_close(run(whole, (x,))[0], run(fn, (x,))[0])


def test_most_are_one_region():
    assert len(CAUSES) == 19
    assert sum(ends == 0 for _, ends in CAUSES.values()) >= 15
