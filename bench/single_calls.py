# bench/single_calls.py
"""Which operators run as single calls of ATen, by count, over model classes: what has no row yet, or refuses.

    python -m bench.single_calls [--training] [--part 3/16] [--json results.json] [NAME ...]
    python -m bench.single_calls --merge results.*.json

The models are the benchmark's and every class of transformers, with small sizes. Read are the plans of a call of each:
how many operators were recorded, and which steps are one call of ATen. Each model has a process of its own.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import signal
import sys
from dataclasses import asdict, dataclass, field

import torch

import torchbolt
from torchbolt import plans
from torchbolt.cli.models import LARGEST, inputs_of, parameters_without_memory, small_config

from .models import NAMES
from .models import build as build_of_bench

SECONDS = 60


@dataclass
class Counts:
    """Of one model or of several."""

    models: int = 0
    operators: int = 0  # of the graphs, which is what was recorded
    calls: dict = field(default_factory=dict)  # by operator: how often it is a call of its own
    seen_in: dict = field(default_factory=dict)  # by operator: in how many models

    def add(self, other: Counts) -> None:
        self.models += other.models
        self.operators += other.operators
        for mine, theirs in ((self.calls, other.calls), (self.seen_in, other.seen_in)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count


def names_of_transformers() -> list[str]:
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    return [name for name in CONFIG_MAPPING if CONFIG_MAPPING[name] in MODEL_MAPPING]


def built(name: str):
    """The model and what it is called with."""
    torch.manual_seed(0)
    if name in NAMES:
        case = build_of_bench(name)
        return case.model, case.args, case.kwargs
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    config_class = CONFIG_MAPPING[name]
    config, cls = small_config(config_class), MODEL_MAPPING[config_class]
    cls = cls[0] if isinstance(cls, tuple | list) else cls
    if parameters_without_memory(cls, config) > LARGEST:
        raise ValueError("does not become small")
    model = cls(config)
    return model, (), inputs_of(config, model)


def floats_of(value):
    """What a loss can be made of."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [t for part in parts for t in floats_of(part)]


def count(name: str, training: bool) -> Counts:
    model, args, kwargs = built(name)
    model.train(training).requires_grad_(training)
    compiled = torchbolt.compile(model)
    with torch.set_grad_enabled(training):
        for _ in range(2):  # the first is the recording
            result = compiled(*args, **kwargs)
            if training:
                torch.autograd.backward([t.float().square().mean() for t in floats_of(result)])
    torchbolt.api.wait()
    counts = Counts(models=1)
    calls = collections.Counter()
    for region in torchbolt.api.compiled_of(compiled)._regions():
        counts.operators += region.get("ops", 0)
        for text in plans.parts_of(region.get("plan", "")).values():
            calls.update(step.name for step in plans.parse(text).steps if step.kind == "extern")
    counts.calls, counts.seen_in = dict(calls), dict.fromkeys(calls, 1)
    return counts


def _answer(pipe, name: str, training: bool) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        pipe.send(count(name, training))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}"[:200])


def in_a_process(name: str, training: bool) -> Counts | None:
    """Forked, so that transformers is imported once; nothing is compiled before."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_answer, args=(theirs, name, training))
    child.start()
    theirs.close()
    try:
        answer = ours.recv() if ours.poll(SECONDS) else "takes too long"
    except EOFError:
        answer = "died"
    child.kill()
    child.join()
    if isinstance(answer, Counts):
        return answer
    print(f"{name}: {answer}", file=sys.stderr)
    return None


def table(counts: Counts, most: int) -> str:
    single = sum(counts.calls.values())
    lines = [
        f"{counts.models} models, {counts.operators} operators, {single} of them single calls of ATen "
        f"({single / max(1, counts.operators):.2%})",
        "",
        "| operator | calls | models |",
        "| --- | ---: | ---: |",
    ]
    by_count = sorted(counts.calls.items(), key=lambda item: (-item[1], item[0]))
    for name, calls in by_count[:most]:
        lines.append(f"| `{name.removeprefix('aten::')}` | {calls} | {counts.seen_in[name]} |")
    if rest := by_count[most:]:
        lines.append(f"| {len(rest)} others | {sum(calls for _, calls in rest)} | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--training", action="store_true", help="forward and backward, as in training")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--json", help="writes the counts there")
    parser.add_argument("--merge", nargs="+", help="counts that --json wrote, instead of models")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    all_counts = Counts()
    for file in args.merge or ():
        with open(file) as opened:
            all_counts.add(Counts(**json.load(opened)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # tells what was counted so far
    with contextlib.suppress(KeyboardInterrupt):
        for name in () if args.merge else (args.names or [*NAMES, *names_of_transformers()])[part - 1 :: parts]:
            if one := in_a_process(name, args.training):
                all_counts.add(one)
    if args.json:
        with open(args.json, "w") as opened:
            json.dump(asdict(all_counts), opened)
    print(table(all_counts, args.rows))


if __name__ == "__main__":
    main()
