# bench/schedules.py
"""Numbers that change with every call: many optimizer steps under a schedule of learning rates, beside torch.compile.

    python -m bench.schedules [--steps 10000]

A step is AdamW's over a few parameters; both compilers are given `optimizer.step`, and the scheduler runs outside.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import torchbolt


def make():
    """Parameters with gradients, their optimizer and a schedule that gives each step another rate."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(32, 32)) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    return parameters, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 1e-4 * step))


def run(compile_step, steps: int, compiles) -> tuple[dict, list]:
    """Microseconds of a step, the median; how often was compiled, and at which step last. And the parameters."""
    parameters, optimizer, schedule = make()
    step = compile_step(optimizer.step)
    times, last = [], 0
    before = seen = compiles()
    for at in range(steps):
        begin = time.perf_counter()
        step()
        times.append(1e6 * (time.perf_counter() - begin))
        schedule.step()
        if (now := compiles()) != seen:
            seen, last = now, at + 1
    return {"us": statistics.median(times), "compiled": seen - before, "last at step": last}, parameters


def compiled_by_torch() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def table(steps=10_000) -> dict[str, dict]:
    """Prints a line for each compiler; the rows by its name."""
    torch.set_num_threads(1)
    ways = {
        "eager": (lambda step: step, lambda: 0),
        "torchbolt": (torchbolt.compile, lambda: torchbolt.stats()["recordings"]),
        "torch.compile": (torch.compile, compiled_by_torch),
    }
    print(f"| {steps} steps | us a step | compiled | last at step | same as eager |\n|---|---|---|---|---|")
    rows, eager = {}, None
    for name, (compile_step, compiles) in ways.items():
        row, parameters = run(compile_step, steps, compiles)
        eager = eager or parameters
        row["same"] = all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(parameters, eager, strict=True))
        print(
            "| " + " | ".join(str(cell) for cell in (name, f"{row['us']:.1f}", *list(row.values())[1:])) + " |",
            flush=True,
        )
        rows[name] = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    table(parser.parse_args().steps)


if __name__ == "__main__":
    main()
