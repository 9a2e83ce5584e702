# tests/api/test_many_threads.py
"""32 threads call and recompile 8 functions with changing shapes: eager's results, no deadlock, no crash.

BOLT_THREAD_SECONDS=60 pytest tests/api/test_many_threads.py
"""

from __future__ import annotations

import faulthandler
import os
import random
import threading
import time

import torch
import torch.nn.functional as F

import torchbolt

SECONDS = float(os.environ.get("BOLT_THREAD_SECONDS", 5))
THREADS = 32

MODEL = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
).eval()
TABLE = {"scale": 2.0}


def pointwise(x, k):
    return torch.tanh(x * 2 + 1) * x


def reduces(x, k):
    y = x.softmax(-1)
    return y.sum(0), y.amax(-1)


def contracts(x, k):
    return x @ x.mT + x.shape[0]


def branches(x, k):
    if x.sum() > 0:
        return x.relu() + 1
    return x.neg() - 1


def takes_a_number(x, k):
    return [x * k, {"k": k, "sizes": tuple(x.shape)}]


def writes(x, k):
    x.add_(1)
    x[0] = 0
    return x * 2


def reads_outside(x, k):
    return x * TABLE["scale"] + F.layer_norm(x, x.shape[-1:])


def calls_a_model(x, k):
    return MODEL(x)


FUNCTIONS = (pointwise, reduces, contracts, branches, takes_a_number, writes, reads_outside, calls_a_model)


def same(got, want):
    if isinstance(want, torch.Tensor):
        return got.shape == want.shape and torch.allclose(got, want, 1e-4, 1e-5)
    if isinstance(want, dict):
        return got == want
    if isinstance(want, list | tuple):
        return len(got) == len(want) and all(map(same, got, want))
    return got == want


def test_threads_call_and_recompile(monkeypatch):
    monkeypatch.setenv("TORCHBOLT_STRICT", "0")  # recompile limits are met, on purpose
    torchbolt.reset()
    compiled = [torchbolt.compile(fn, recompile_limit=4) for fn in FUNCTIONS]
    stop = time.monotonic() + SECONDS
    wrong, calls = [], [0] * THREADS

    def work(seed):
        choose, values = random.Random(seed), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            while time.monotonic() < stop and not wrong:
                which = choose.randrange(len(FUNCTIONS))
                x = torch.randn(choose.randrange(1, 9), 8, generator=values)
                k = choose.randrange(3)
                if choose.random() < 0.002:
                    compiled[which]._clear()
                try:
                    want = FUNCTIONS[which](x.clone(), k)
                    got = compiled[which](x.clone(), k)
                except Exception as error:
                    wrong.append((FUNCTIONS[which].__name__, repr(error)))
                    return
                if not same(got, want):
                    wrong.append((FUNCTIONS[which].__name__, tuple(x.shape), k))
                calls[seed] += 1

    # A deadlock shows where every thread stands.
    faulthandler.dump_traceback_later(SECONDS + 120, exit=True)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert not wrong, wrong[:3]
    assert min(calls) > 0 and torchbolt.stats()["regions"] > len(FUNCTIONS), (calls, torchbolt.stats())


def test_threads_meet_a_regions_end(monkeypatch):
    """What a call's guards found is its own, though letting go of another call's tensors lets threads in."""
    monkeypatch.setenv("TORCHBOLT_STRICT", "0")
    torchbolt.reset()
    compiled = torchbolt.compile(branches, recompile_limit=4)
    stop, wrong = time.monotonic() + min(SECONDS, 3), []

    def work(seed):
        choose, values = random.Random(seed), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            while time.monotonic() < stop and not wrong:
                x = torch.randn(choose.randrange(1, 9), 8, generator=values)
                want, got = branches(x.clone(), 0), compiled(x, 0)
                if not same(got, want):
                    wrong.append((x, got, want))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]
