# bench/guards.py
"""What a call costs before the first kernel runs: guards of modules with many layers, beside torch.compile.

    python -m bench.guards [--layers 10 80 400] [--seconds 2]

Both compilers get a backend that answers with the results of its first run, so that a call is guards and the way to the
graph, and nothing else. The two take turns. "guards" is torchbolt's own check alone.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import torchbolt


class Block(nn.Module):
    """A transformer layer's modules in its shape, and the attributes that such code reads."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.norm_first, self.width, self.scale = True, width, width**-0.5
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.1)

    def attention(self, x):
        scores = (self.query(x) * self.scale) @ self.key(x).transpose(-1, -2)
        return self.dropout(self.out(scores.softmax(-1) @ self.value(x)))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.dropout(self.down(torch.relu(self.up(self.norm2(x)))))
        return self.norm2(x + self.attention(x))


def first_results(graph, inputs):
    """A backend: what the graph gave once."""
    results = None

    def run(*args):
        nonlocal results
        if results is None:
            results = graph(*args)
        return results

    return run


def microseconds(call, seconds: float) -> float:
    """The median call."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


@torch.no_grad()
def measure(layers: int, seconds: float) -> dict:
    """One row of the table."""
    model = nn.Sequential(*[Block() for _ in range(layers)]).eval()
    x = torch.randn(1, 4, 8)
    torch._dynamo.reset()
    torchbolt.reset()
    calls = {
        "torchbolt": torchbolt.compile(model, backend=first_results),
        "torch.compile": torch.compile(model, backend=first_results),
    }
    row = {"layers": layers}
    for name, call in calls.items():
        begin = time.perf_counter()
        call(x)
        row[f"{name} first s"] = time.perf_counter() - begin
        call(x)
    rounds = {name: [] for name in calls}
    for _ in range(5):
        for name, call in calls.items():
            rounds[name].append(microseconds(lambda call=call: call(x), seconds / 5))
    row |= {f"{name} us": statistics.median(taken) for name, taken in rounds.items()}
    seen = torchbolt.explain(model)(x)
    return row | {"guards us": seen.guard_us, "guards": len(seen.out_guards)}


COLUMNS = ("layers", "guards", "guards us", "torchbolt us", "torch.compile us", "torchbolt first s",
           "torch.compile first s")  # fmt: skip


def table(layers=(10, 80, 400), seconds=2.0) -> dict[int, dict]:
    """Prints a line for each number of layers; the rows by it."""
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    rows = {}
    for count in layers:
        row = rows[count] = measure(count, seconds)
        print("| " + " | ".join(f"{row[c]:.4g}" for c in COLUMNS) + " |", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[10, 80, 400])
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    table(args.layers, args.seconds)


if __name__ == "__main__":
    main()
