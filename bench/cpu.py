# bench/cpu.py
"""Measures eager, torchbolt and its peers on the CPU, side by side: a table and a chart.

For each model, dtype and thread count, one group:
  1. every backend starts in a process of its own with an empty cache: cold start, peak memory;
  2. every backend starts again with the cache that was left: second process. That is measured for the first
     thread count; for the others the processes of 1 stay;
  3. the last processes stay, and take turns in short rounds; only one works at a time. A backend's time
     is the median of its rounds; its speed is the median over rounds of eager's time by its own in the same
     round, so that what slows the machine for a while slows both;
  4. each says how far its result is from a float64 run, and what it made of the model.
Then the small measurements of micro.py, taking turns in the same way.

Every measurement is a line of results.jsonl at once. Started again, the run goes on where it stopped; a
finished group is not measured again, but for the backends that `--again` names. Another machine, torch or
size starts anew (the old file is kept beside it).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from bench import summary  # noqa: E402
from bench.process import Failed, Process, environment  # noqa: E402

BACKENDS = ("eager", "torchbolt", "torch.compile", "openvino", "onnxruntime")
PYTORCH_BACKENDS = BACKENDS[:3]
KERNELS = ("clone", "copy_", *summary.FUSED_KERNELS)
# Instruction set -> variables. ONNX Runtime has no such switch: it takes what the machine has.
NARROWED = {
    isa: dict(variable.split("=") for variable in variables)
    for isa, *variables in map(str.split, (ROOT / "scripts" / "narrower_machines.txt").read_text().splitlines())
    if isa != "#"
}


class Results:
    """results.jsonl: a header line, then a line a measurement."""

    def __init__(self, file: pathlib.Path, header: dict, forget: list[str]):
        self.file, self.lines = file, []
        if file.exists():
            old = [json.loads(line) for line in file.read_text().splitlines()]
            if old and old[0] == header:
                self.lines = [line for line in old[1:] if line["backend"] not in forget]
            else:
                file.rename(file.with_suffix(f".{time.strftime('%Y%m%d-%H%M%S')}.jsonl"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in (header, *self.lines)))

    def add(self, **line) -> None:
        """Writes one measurement."""
        self.lines.append(line)
        with self.file.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def has(self, **key) -> bool:
        """Whether a measurement with these fields is there."""
        return any(all(line.get(k) == v for k, v in key.items()) for line in self.lines)


class Group:
    """One model, dtype and thread count on all backends."""

    def __init__(self, run: Run, model: str, dtype: str, threads: int):
        self.run, self.key = run, {"model": model, "dtype": dtype, "threads": threads}
        self.folder = run.folder / "work" / f"{model}-{dtype}-{threads}"
        self.restarts = threads == run.args.threads[0]
        self.workers: dict[str, Process] = {}
        self.failed: set[str] = set()

    def measure(self) -> None:
        wanted = [b for b in self.run.args.backends if not self.run.results.has(what="done", backend=b, **self.key)]
        if not wanted:
            return
        # Speed is relative to eager in the same rounds, so eager runs along.
        backends = list(dict.fromkeys(["eager", *wanted]))
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self._start("float64", "reference").close()
            for backend in backends:
                self._cold(backend)
            if self.restarts:
                for backend in backends:
                    self._second(backend)
            self._rounds()
            for backend in list(self.workers):
                self._report(backend)
        finally:
            for worker in self.workers.values():
                worker.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        for backend in backends:
            self.run.results.add(what="done", backend=backend, **self.key)

    def _start(self, backend: str, phase: str) -> Process:
        from bench.backends import BACKENDS as known

        cache = self.folder / backend
        cache.mkdir(parents=True, exist_ok=True)
        variable = known[backend].cache_env if backend in known else None
        options = {**self.key, "size": self.run.args.size, "backend": backend, "cache": cache,
                   "reference": self.folder / "float64.pt"}  # fmt: skip
        process = Process(
            "worker.py", [f"--{k}={v}" for k, v in options.items()],
            environment(self.key["threads"], **({variable: str(cache)} if variable else {})),
            self.run.folder / "logs" / f"{self.folder.name}-{backend}-{phase}.log")  # fmt: skip
        try:
            process.first = process.read()
        except Failed:
            process.close()
            raise
        return process

    def _cold(self, backend: str) -> None:
        self.run.progress(self.key, f"{backend}: first call, empty cache")
        try:
            worker = self._start(backend, "cold")
        except Failed as error:
            self._fail(backend, "cold", error)
            return
        self.run.results.add(what="start", phase="cold", backend=backend, **worker.first, **self.key)
        if self.restarts:
            worker.close()
        else:
            self.workers[backend] = worker

    def _second(self, backend: str) -> None:
        if backend in self.failed:
            return
        self.run.progress(self.key, f"{backend}: first call, filled cache")
        try:
            self.workers[backend] = self._start(backend, "second")
        except Failed as error:
            self._fail(backend, "second", error)
            return
        first = self.workers[backend].first
        self.run.results.add(what="start", phase="second", backend=backend, **first, **self.key)

    def _rounds(self) -> None:
        rounds: dict[str, list[float]] = {b: [] for b in self.workers}
        for i in range(self.run.args.rounds):
            self.run.progress(self.key, f"steady state, round {i + 1} of {self.run.args.rounds}")
            for backend in list(self.workers):
                reply = self._ask(backend, f"time {self.run.args.seconds}", "steady")
                rounds[backend].append(statistics.median(reply["ms"]) if reply else 0.0)
        if "eager" not in self.workers:
            raise Failed("eager does not run this model here")
        for backend in self.workers:
            ms = rounds[backend]
            speed = statistics.median(e / t for e, t in zip(rounds["eager"], ms, strict=True))
            found = {"ms": statistics.median(ms), "rounds_ms": ms, "speed": speed}
            self.run.results.add(what="steady", backend=backend, **found, **self.key)

    def _report(self, backend: str) -> None:
        """What the backend says of its result and of its work."""
        for command in ("error", "facts"):
            self.run.progress(self.key, f"{backend}: {command}")
            reply = self._ask(backend, command, command)
            if reply is None:
                return
            self.run.results.add(what=command, backend=backend, **reply, **self.key)

    def _ask(self, backend: str, command: str, phase: str) -> dict | None:
        """The worker's reply; None, and the worker is out, where it failed."""
        try:
            return self.workers[backend].ask(command)
        except Failed as error:
            self.workers.pop(backend).close()
            self._fail(backend, phase, error)
            return None

    def _fail(self, backend: str, phase: str, error: Failed) -> None:
        self.failed.add(backend)
        self.run.results.add(what="failed", phase=phase, backend=backend, reason=str(error), **self.key)


class Run:
    """The whole run: the groups, the small measurements, the report."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.folder = args, args.out
        self.results = Results(self.folder / "results.jsonl", header(args), args.again)
        self.began, self.at, self.total = time.monotonic(), 0, 1

    def progress(self, key: dict, text: str) -> None:
        """One line that says where the run is; on a terminal it overwrites the last."""
        where = " ".join(str(v) for v in key.values())
        elapsed = time.strftime("%H:%M:%S", time.gmtime(time.monotonic() - self.began))
        line = f"[{self.at}/{self.total} {elapsed}] {where}: {text}"
        if sys.stderr.isatty():
            print(
                f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        else:
            print(line, file=sys.stderr, flush=True)

    def measure(self) -> None:
        from bench.models import MODELS

        cases = [(row.name, str(dtype).removeprefix("torch."), threads)
                 for threads in self.args.threads for row in MODELS for dtype in row.dtypes]  # fmt: skip
        chosen = [c for c in cases if c[0] in self.args.models and c[1] in self.args.dtypes]
        self.total = len(chosen) + (2 if self.args.micro else 0)
        for self.at, case in enumerate(chosen, 1):
            try:
                Group(self, *case).measure()
            except Failed as error:
                print(f"\n{' '.join(map(str, case))}: {error}", file=sys.stderr)
            summary.write(self.results.file, self.folder)
        if self.args.micro:
            self.at = self.total - 1
            self._small()
            self.at = self.total
            self._kernels()
            summary.write(self.results.file, self.folder)

    def _micro(self, threads: int) -> dict[str, Process]:
        backends = [b for b in PYTORCH_BACKENDS if b in self.args.backends]
        return {b: Process("micro.py", [f"--backend={b}", f"--threads={threads}"], environment(threads),
                           self.folder / "logs" / f"micro-{b}-{threads}.log") for b in backends}  # fmt: skip

    def _turns(self, workers: dict[str, Process], command: str, field: str, **key) -> None:
        """Each is given this command in turns; the median of what they say is the measurement."""
        if self.results.has(what="micro", **key):
            return
        replies: dict[str, list[dict]] = {b: [] for b in workers}
        for _ in range(self.args.rounds):
            for backend, worker in workers.items():
                self.progress(key, f"{backend}")
                try:
                    replies[backend].append(worker.ask(command))
                except Failed as error:
                    self.results.add(what="failed", phase="micro", backend=backend, reason=str(error), **key)
        for backend, got in replies.items():
            if got:
                middle = sorted(got, key=lambda r: r[field])[len(got) // 2]
                self.results.add(what="micro", backend=backend, **middle, **key)

    def _small(self) -> None:
        workers = self._micro(threads=1)
        try:
            self._turns(workers, f"call {self.args.seconds}", "us", name="call")
            self._turns(workers, f"encoder {self.args.seconds}", "ms", name="encoder")
            for backend, worker in workers.items():
                key = {"name": "memory", "backend": backend}
                if not self.results.has(what="micro", **key):
                    self.progress(key, "a million calls")
                    self.results.add(what="micro", **worker.ask(f"memory {self.args.calls}"), **key)
        finally:
            for worker in workers.values():
                worker.close()

    def _kernels(self) -> None:
        workers = self._micro(threads=max(self.args.threads))
        try:
            for kernel in KERNELS:
                only = {"eager": workers["eager"]} if kernel in ("clone", "copy_") else workers
                self._turns(only, f"kernel {kernel} {self.args.seconds}", "ms", name="kernel", kernel=kernel)
        finally:
            for worker in workers.values():
                worker.close()


def header(args: argparse.Namespace) -> dict:
    """What a stored measurement depends on."""
    import torch

    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())  # fmt: skip
    return {"cpu": cpu, "cores": os.cpu_count(), "isa": torch.backends.cpu.get_cpu_capability(),
            "torch": torch.__version__, "python": platform.python_version(), "size": args.size}  # fmt: skip


def parse(argv=None) -> argparse.Namespace:
    from bench.models import NAMES

    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME")
    p.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    p.add_argument("--again", nargs="+", default=[], choices=BACKENDS, help="measure these backends anew")
    p.add_argument("--size", default="bench", choices=["bench", "test"])
    p.add_argument("--isa", choices=list(NARROWED), help="hide wider instructions from all but ONNX Runtime")
    p.add_argument("--rounds", type=int, default=7, help="turns in steady state")
    p.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    p.add_argument("--calls", type=int, default=1_000_000, help="calls of the memory measurement")
    p.add_argument("--no-micro", dest="micro", action="store_false", help="models only")
    p.add_argument("--quick", action="store_true", help="short turns, one thread, float32: a first impression")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "bench")
    args = p.parse_args(argv)
    if args.quick:
        args.rounds, args.seconds, args.threads, args.dtypes, args.calls = 3, 0.2, [1], ["float32"], 50_000
    return args


def main() -> None:
    args = parse()
    os.environ.update(NARROWED.get(args.isa, {}))
    run = Run(args)
    try:
        run.measure()
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    print(f"\n{(args.out / 'report.md').read_text()}\nwritten: {args.out}/report.md, report.html, summary.json")


if __name__ == "__main__":
    main()
