# bench/causes.py
"""What ends regions in programs as people write them, beside torch.compile: eager's results, and true reports?

    python -m bench.causes

For each program: is everything that the user gets and sees eager's, how many ends does `explain` report, does
`fullgraph=True` take the program, and do these two agree.
"""

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
import torch

import torchbolt

logger = logging.getLogger("causes")
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


@cause("time", 1)  # what two clocks show is compared
def times(x):
    begin = time.perf_counter()
    y = x * 2
    return y + 1, time.perf_counter() >= begin


@cause("random", 0)
def draws(x):
    y = x * 2
    return y * random.random()


@cause("numpy", 0)
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
            warnings.showwarning = lambda m, c, file, line, *_: seen.write(f"{c.__name__} {file}:{line} {str(m)!r}\n")
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


class Torchbolt:
    """How torchbolt is asked; `stats` is counted apart from `explain`."""

    name = "torchbolt"
    compile = staticmethod(torchbolt.compile)
    reset = staticmethod(torchbolt.reset)

    @staticmethod
    def ends(fn, x) -> int:
        return run(torchbolt.explain(fn), (x,))[0].graph_break_count


class TorchCompile:
    """How torch.compile is asked; what makes its kernels has no part in any of it."""

    name = "torch.compile"

    @staticmethod
    def reset():
        torch._dynamo.reset()

    @staticmethod
    def compile(fn, **options):
        return torch.compile(fn, backend="eager", **options)

    @staticmethod
    def ends(fn, x) -> int:
        return run(torch._dynamo.explain(fn), (x,))[0].graph_break_count


def users(shown: str) -> list[str]:
    """What the program itself showed: without the compiler's own warnings."""
    return [line for line in shown.splitlines() if "Warning " not in line or __file__ in line]


def as_eager(fn, compiled, inputs) -> bool:
    """Results, what is shown, in order, and the global: the same in every call?"""
    for x in inputs:
        want, got = run(fn, (x.clone(),)), run(compiled, (x.clone(),))
        try:
            torch.testing.assert_close(got[0], want[0], rtol=1e-6, atol=1e-6)
        except AssertionError:
            return False
        if users(got[1]) != users(want[1]) or got[2] != want[2]:
            return False
    return True


def measure(name: str, compiler) -> dict:
    """One program and one compiler."""
    fn, _ = CAUSES[name]
    inputs = list(torch.rand(4, 4, generator=torch.Generator().manual_seed(0)) + 0.5)
    compiler.reset()
    same = as_eager(fn, compiler.compile(fn), inputs)
    compiler.reset()
    ends = compiler.ends(fn, inputs[0])
    compiler.reset()
    try:
        run(compiler.compile(fn, fullgraph=True), (inputs[0],))
        whole = True
    except Exception:
        whole = False
    return {"eager's": same, "ends": ends, "fullgraph": whole, "agree": whole == (ends == 0)}


COLUMNS = ("eager's", "ends", "fullgraph", "agree")


def table() -> dict[str, list[dict]]:
    """Prints a line for each program; the rows of each compiler."""
    compilers = (Torchbolt, TorchCompile)
    print("| cause | " + " | ".join(f"{c.name}: {column}" for c in compilers for column in COLUMNS) + " |")
    print("|---|" + "---|" * len(COLUMNS) * len(compilers))
    rows = {c.name: [] for c in compilers}
    for name in CAUSES:
        cells = []
        for c in compilers:
            rows[c.name].append(measure(name, c))
            cells += [{True: "yes", False: "no"}.get(v, v) if k != "ends" else v for k, v in rows[c.name][-1].items()]
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |", flush=True)
    return rows


def main() -> None:
    for name, rows in table().items():
        same, agree = (sum(row[column] for row in rows) for column in ("eager's", "agree"))
        whole = sum(row["ends"] == 0 for row in rows)
        print(
            f"{name}: of {len(rows)} {same} as in eager, {whole} in one region; explain and fullgraph agree on {agree}"
        )


if __name__ == "__main__":
    main()
