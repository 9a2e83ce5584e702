# bench/micro.py
"""Small measurements on one backend in a process of its own. Commands on stdin -> JSON lines.

    call SECONDS          microseconds of one call of relu(x * 2 + 1) on 16 elements
    kernel NAME SECONDS   one fused kernel on 64 MB of float32: milliseconds and the bytes it must move
    encoder SECONDS       milliseconds of one call of an 80-layer transformer encoder, and its guards' time
    memory CALLS          resident memory gained over so many calls, in MB

Bytes that must move are input plus output. The rate to compare with is that of `copy_`, into memory that is
already there; `clone` shows what a fresh result costs eager.

`--table` prints every kernel on eager and torchbolt (and torch.compile with --torch-compile) instead, as
fractions of the copy. The backends and the copy take turns call by call in one process, and the fastest call
of each counts: on a machine that others use too, that is what the code can do.
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


def chain(x, w, b, y):
    return torch.relu(x * 2 + 1) * 0.5 - x.abs()


KERNELS = {
    "clone": lambda x, w, b, y: x.clone(),
    "copy_": lambda x, w, b, y: SCRATCH.copy_(x),
    "pointwise chain": chain,
    "softmax": lambda x, w, b, y: F.softmax(x, dim=-1),
    "layer norm": lambda x, w, b, y: F.layer_norm(x, (SIDE,), w, b),
    "row sum": lambda x, w, b, y: x.sum(dim=1),
    "column sum": lambda x, w, b, y: x.sum(dim=0),
    "full sum": lambda x, w, b, y: x.sum(),
    "transpose add": lambda x, w, b, y: x.t() + y,
}
COPIES = ("clone", "copy_")
USES_Y = ("transpose add",)
SCRATCH = torch.empty(0)


def tiny(x):
    return torch.relu(x * 2 + 1)


def make_inputs() -> tuple:
    return torch.randn(SIDE, SIDE), torch.randn(SIDE), torch.randn(SIDE), torch.randn(SIDE, SIDE)


def bytes_moved(name: str, inputs: tuple, result) -> int:
    """What must be read and written: the large inputs and the result."""
    return (inputs[0].nbytes * (2 if name in USES_Y else 1)) + result.nbytes


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
            self.tensors = make_inputs()
            SCRATCH = torch.zeros(SIDE, SIDE)
        if name not in self.functions:
            self.functions[name] = KERNELS[name] if name in COPIES else self.compile(KERNELS[name])
        fn, inputs = self.functions[name], self.tensors
        moved = bytes_moved(name, inputs, fn(*inputs))
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


def fastest(calls: dict, seconds: float) -> dict[str, float]:
    """Milliseconds of each one's fastest call; they take turns for about `seconds`."""
    for call in calls.values():
        call()
        call()
    best, end = dict.fromkeys(calls, float("inf")), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - begin) * 1e3)
    return best


def table(backends: list[str], names: list[str], seconds: float) -> None:
    """One row a kernel: each backend's GB/s, and in brackets the fraction of the copy's."""
    inputs, scratch = make_inputs(), torch.zeros(SIDE, SIDE)
    print(f"{'GB/s (of copy)':16}{'MB':>6}{'copy':>8}" + "".join(f"{b:>18}" for b in backends))
    for name in names:
        calls = {"copy": lambda: scratch.copy_(inputs[0])}
        for backend in backends:
            fn = compiler(backend)(KERNELS[name])
            calls[backend] = lambda fn=fn: fn(*inputs)
        best = fastest(calls, seconds)
        moved = bytes_moved(name, inputs, calls[backends[0]]())
        rate = {b: (2 * inputs[0].nbytes if b == "copy" else moved) / ms / 1e6 for b, ms in best.items()}
        row = "".join(f"{rate[b]:>11.1f} ({rate[b] / rate['copy']:.2f})" for b in backends)
        print(f"{name:16}{moved / 1e6:>6.0f}{rate['copy']:>8.1f}{row}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--table", nargs="*", metavar="KERNEL", help="print the kernels (all, or these)")
    parser.add_argument("--torch-compile", action="store_true", help="in the table too")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each row of the table")
    args = parser.parse_args()
    if args.table is not None:
        torch.set_num_threads(args.threads)
        names = args.table or [k for k in KERNELS if k not in COPIES]
        with torch.no_grad():
            table(["eager", "torchbolt", *["torch.compile"] * args.torch_compile], names, args.seconds)
        return
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
