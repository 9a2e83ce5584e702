# bench/single_calls.py
"""Which operators run as single calls of ATen, by count, over model classes: what has no row yet, or refuses.

    python -m bench.single_calls [--training] [--part 3/16] [--json results.json] [NAME ...]
    python -m bench.single_calls --merge results.*.json

The models are the benchmark's, every class of transformers with small sizes, and one of each family of timm, where
these are installed. Read are the plans of a call of each: how many operators were recorded, and which steps are one
call of ATen. Those that are a library's work (products, convolutions, attention, sorts, decompositions) or draw the
random numbers that eager draws are counted apart. Each model has a process of its own.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import json
import multiprocessing
import signal
import sys
from dataclasses import asdict, dataclass, field

import torch

import torchbolt
from torchbolt import plans
from torchbolt.cli.models import LARGEST, inputs_of, of_timm, parameters_without_memory, small_config

from .models import NAMES
from .models import build as build_of_bench

SECONDS = 60
TIMM = "timm:"
# What a small model of timm has in its name, the smallest first.
SMALL = (
    "test_", "atto", "femto", "pico", "nano", "xxs", "xs", "micro", "mini", "tiny", "_t", "small", "_s", "b0", "18",
)  # fmt: skip
# Parts of the names of operators whose work is a library's, or a draw.
LIBRARIES = (
    "mm", "convolution", "attention", "sort", "topk", "linalg", "fft", "rnn", "lstm", "gru", "cudnn", "mkldnn",
    "bernoulli", "dropout", "rand", "normal_", "uniform", "multinomial", "exponential_",
)  # fmt: skip


@dataclass
class Counts:
    """Of one model or of several."""

    models: int = 0
    operators: int = 0  # of the graphs, which is what was recorded
    calls: dict = field(default_factory=dict)  # by operator: how often it is a call of its own
    seen_in: dict = field(default_factory=dict)  # by operator: in how many models
    ends: dict = field(default_factory=dict)  # why regions ended, how often
    eager: dict = field(default_factory=dict)  # why regions are eager's

    def add(self, other: Counts) -> None:
        self.models += other.models
        self.operators += other.operators
        for kind in ("calls", "seen_in", "ends", "eager"):
            mine = getattr(self, kind)
            for name, count in getattr(other, kind).items():
                mine[name] = mine.get(name, 0) + count


def names_of_transformers() -> list[str]:
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    return [name for name in CONFIG_MAPPING if CONFIG_MAPPING[name] in MODEL_MAPPING]


def names_of_timm() -> list[str]:
    """Of each family the one whose name promises the smallest."""
    if importlib.util.find_spec("timm") is None:
        return []
    import timm

    def size(name: str) -> tuple:
        return next((i for i, word in enumerate(SMALL) if word in name), len(SMALL)), len(name), name

    families = (timm.list_models(module=module) for module in timm.list_modules())
    return sorted({TIMM + min(names, key=size) for names in families if names})


def smallest_part(model, image):
    """As small an image as the model takes: networks of convolutions take most sizes."""
    for size in (96, 128):
        part = image[..., :size, :size].contiguous()
        with contextlib.suppress(Exception), torch.no_grad():
            model(part)
            return part
    return image


def built(name: str):
    """The model and what it is called with."""
    torch.manual_seed(0)
    if name in NAMES:
        case = build_of_bench(name)
        return case.model, case.args, case.kwargs
    if name.startswith(TIMM):
        _, model, kwargs = of_timm(name.removeprefix(TIMM))
        return model, (), {key: smallest_part(model, image) for key, image in kwargs.items()}
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
    inner = torchbolt.api.compiled_of(compiled)
    counts.ends = dict(collections.Counter(end["reason"] for end in inner._region_ends()))
    for region in inner._regions():
        if region.get("why_replayed"):
            counts.eager[region["why_replayed"]] = counts.eager.get(region["why_replayed"], 0) + 1
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


def is_a_librarys(name: str) -> bool:
    return any(part in name for part in LIBRARIES)


def table(counts: Counts, most: int) -> str:
    single = sum(counts.calls.values())
    others = sum(calls for name, calls in counts.calls.items() if not is_a_librarys(name))
    lines = [
        f"{counts.models} models, {counts.operators} operators, {single} of them single calls of ATen "
        f"({single / max(1, counts.operators):.2%}), {others} neither a library's nor draws "
        f"({others / max(1, counts.operators):.2%})",
        "",
        "| operator | calls | models |",
        "| --- | ---: | ---: |",
    ]
    by_count = sorted(counts.calls.items(), key=lambda item: (-item[1], item[0]))
    for name, calls in by_count[:most]:
        lines.append(f"| `{name.removeprefix('aten::')}` | {calls} | {counts.seen_in[name]} |")
    if rest := by_count[most:]:
        lines.append(f"| {len(rest)} others | {sum(calls for _, calls in rest)} | |")
    for title, reasons in (("Regions ended", counts.ends), ("Regions that are eager's", counts.eager)):
        if reasons:
            lines += ["", f"{title}:"]
            by_times = sorted(reasons.items(), key=lambda item: -item[1])
            lines += [f"{times} times: {why}" for why, times in by_times[:most]]
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
        names = args.names or [*NAMES, *names_of_transformers(), *names_of_timm()]
        for name in () if args.merge else names[part - 1 :: parts]:
            if one := in_a_process(name, args.training):
                all_counts.add(one)
    if args.json:
        with open(args.json, "w") as opened:
            json.dump(asdict(all_counts), opened)
    print(table(all_counts, args.rows))


if __name__ == "__main__":
    main()
