# bench/worker.py
"""One model on one backend in a process of its own. Commands on stdin -> JSON lines.

Start: eager runs first (it warms torch's own lazily made state, which every backend shares), then the
backend's first call is timed. Then the process answers commands, so that a driver can take turns between
the processes of several backends:

    time SECONDS   calls for that long -> {"ms": [...]}
    error          -> {"error": largest difference from the float64 run}
    facts          -> what the backend says about its work

Does not: decide what to measure, or compare backends; cpu.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))


def peak_rss_mb() -> float:
    """The highest resident memory of this process so far. (ru_maxrss would start at the parent's.)"""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def time_calls(call, seconds: float, at_least: int = 3) -> list[float]:
    """Milliseconds of each call, for `seconds` but not fewer than `at_least` calls."""
    out, end = [], time.perf_counter() + seconds
    while len(out) < at_least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        out.append((time.perf_counter() - start) * 1e3)
    return out


class Worker:
    def __init__(self, args):
        import torch

        from bench import models
        from bench.backends import BACKENDS

        torch.set_num_threads(args.threads)
        self.args, self.backend = args, BACKENDS[args.backend]
        self.case = models.build(args.model, args.size, models.parse_dtype(args.dtype))

    def start(self) -> dict:
        """Warm eager, then the backend's first call."""
        first_eager = time_calls(self.case, 0, 1)[0]
        eager = statistics.median(time_calls(self.case, 0, 3))
        begin = time.perf_counter()
        self.call = self.backend.prepare(self.case, self.args.cache, self.args.threads)
        self.call()
        first = (time.perf_counter() - begin) * 1e3
        time_calls(self.call, 0, 2)
        return {
            "eager_first_ms": first_eager,
            "eager_ms": eager,
            "first_ms": first,
            "peak_rss_mb": peak_rss_mb(),
        }

    def time(self, seconds: str) -> dict:
        return {"ms": time_calls(self.call, float(seconds))}

    def error(self) -> dict:
        import torch

        from bench import compare

        return {"error": compare.max_error(self.call(), torch.load(self.args.reference))}

    def facts(self) -> dict:
        return self.backend.facts(self.case)


def write_reference(args) -> dict:
    """Runs the model in float64 and stores its floating point outputs, for `error` of the other processes."""
    import torch

    from bench import compare, models

    exact = models.build(args.model, args.size, models.parse_dtype(args.dtype)).to(torch.float64)()
    torch.save(compare.floating(exact), args.reference)
    return {"reference": str(args.reference)}


def serve(args, reply) -> None:
    if args.backend == "float64":
        return reply(write_reference(args))
    worker = Worker(args)
    reply(worker.start())
    for line in sys.stdin:
        command, *rest = line.split()
        reply(getattr(worker, command)(*rest))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("model", "dtype", "backend", "size"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--reference", type=pathlib.Path, required=True)
    args = parser.parse_args()
    # Libraries print to stdout as they like; the replies keep the real one for themselves.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def reply(message: dict) -> None:
        channel.write(json.dumps(message) + "\n")

    try:
        serve(args, reply)
    except Exception as error:
        traceback.print_exc()
        first_line = (str(error).strip().splitlines() or [""])[0]
        reply({"failed": f"{type(error).__name__}: {first_line}"[:300]})
        sys.exit(1)


if __name__ == "__main__":
    main()
