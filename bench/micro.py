"""bench/micro.py: small measurements on one backend in a process of its own. Commands on stdin -> JSON lines.

    call SECONDS          microseconds of one call of relu(x * 2 + 1) on 16 elements
    kernel NAME SECONDS   one fused kernel on 64 MB of float32: milliseconds and the bytes it must move
    encoder SECONDS       milliseconds of one call of an 80-layer transformer encoder, and its guards' time
    memory CALLS          resident memory gained over so many calls, in MB

Bytes that must move are input plus output. Kernels with an output as large as the input are compared
with `clone`, which allocates its result as they do; reductions with `copy_` into memory that is already
there.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from torch.nn import functional as F

SIDE = 4096  # 4096 x 4096 float32 = 64 MB
BATCH = 1000


def chain(x, w, b):
    return torch.relu(x * 2 + 1) * 0.5 - x.abs()


KERNELS = {
    "clone": lambda x, w, b: x.clone(),
    "copy_": lambda x, w, b: SCRATCH.copy_(x),
    "pointwise chain": chain,
    "softmax": lambda x, w, b: F.softmax(x, dim=-1),
    "layer norm": lambda x, w, b: F.layer_norm(x, (SIDE,), w, b),
    "row sum": lambda x, w, b: x.sum(dim=1),
    "column sum": lambda x, w, b: x.sum(dim=0),
}
COPIES = {"row sum": "copy_", "column sum": "copy_"}
SCRATCH = torch.empty(0)


def tiny(x):
    return torch.relu(x * 2 + 1)


def compiler(backend: str):
    """The backend's `compile`."""
    if backend == "torchbolt":
        import torchbolt

        return torchbolt.compile
    return torch.compile if backend == "torch.compile" else lambda fn: fn


def rss_mb() -> float:
    """Resident memory of this process now."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def milliseconds(call, seconds: float) -> float:
    """The median call, over `seconds` and at least 5 calls."""
    call()
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


class Micro:
    def __init__(self, backend: str):
        self.backend, self.compile = backend, compiler(backend)
        self.functions, self.tensors = {}, None
        self.tiny, self.small = self.compile(tiny), torch.randn(16)

    def _batch(self, n: int = BATCH) -> None:
        fn, x = self.tiny, self.small
        for _ in range(n):
            fn(x)

    def call(self, seconds: str) -> dict:
        return {"us": milliseconds(self._batch, float(seconds)) * 1e3 / BATCH}

    def memory(self, calls: str) -> dict:
        self._batch(20_000)
        before = rss_mb()
        self._batch(int(calls))
        return {"calls": int(calls), "gained_mb": rss_mb() - before}

    def kernel(self, *words: str) -> dict:
        global SCRATCH
        name, seconds = " ".join(words[:-1]), float(words[-1])
        if self.tensors is None:
            self.tensors = torch.randn(SIDE, SIDE), torch.randn(SIDE), torch.randn(SIDE)
            SCRATCH = torch.zeros(SIDE, SIDE)
        if name not in self.functions:
            plain = name in ("clone", "copy_")
            self.functions[name] = KERNELS[name] if plain else self.compile(KERNELS[name])
        fn, inputs = self.functions[name], self.tensors
        moved = sum(t.nbytes for t in (inputs[0], fn(*inputs)))
        ms = milliseconds(lambda: fn(*inputs), seconds)
        return {"ms": ms, "gb_per_s": moved / ms / 1e6}

    def encoder(self, seconds: str) -> dict:
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 80, enable_nested_tensor=False).eval().requires_grad_(False)
        x = torch.randn(1, 8, 32)
        fn = self.compile(model)
        result = {"ms": milliseconds(lambda: fn(x), float(seconds))}
        if self.backend == "torchbolt":
            import torchbolt

            seen = torchbolt.explain(model)(x)
            result |= {"guard_us": getattr(seen, "guard_us", None), "guards": len(seen.out_guards)}
        return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    with torch.no_grad():
        micro = Micro(args.backend)
        for line in sys.stdin:
            command, *rest = line.split()
            try:
                reply = getattr(micro, command)(*rest)
            except Exception as error:
                reply = {"failed": f"{type(error).__name__}: {error}"[:300]}
            channel.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
