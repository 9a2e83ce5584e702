# tests/models/sweep.py
"""Models of transformers and timm, tiny or small, against eager: what is not compiled, differs, or crashes.

    python tests/models/sweep.py [--timm] [--part 3/16] [NAME ...] > sweep.jsonl

By default every model class of transformers; with --timm, where that is installed, the two smallest models of each of
its files. Each model runs in a process of its own and writes one line: regions, breaks and their reasons, eager
fall-backs, the largest difference from eager; with the same inputs, in another batch size, and of the gradients, each
three times. Models that need inputs or sizes this file does not know are skipped, with the reason.
It is no test: what it finds becomes a small case in the tests of the stage that is wrong.
"""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import os
import signal
import traceback

import torch
from transformers import CONFIG_MAPPING, MODEL_MAPPING

import torchbolt
from torchbolt.cli.models import LARGEST, inputs_of, parameters_without_memory, small_config

SECONDS = 60


def build(name):
    config_class = CONFIG_MAPPING[name]
    config = small_config(config_class)
    cls = MODEL_MAPPING[config_class]
    cls = cls[0] if isinstance(cls, tuple | list) else cls
    if parameters_without_memory(cls, config) > LARGEST:
        raise ValueError("does not become small")
    torch.manual_seed(0)
    return config, cls(config).eval()


def tensors(value, path=""):
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors(part, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from tensors(part, f"{path}[{i}]")


def difference(expected, got):
    """The largest difference over the largest number, or what is not equal at all."""
    expected, got = list(tensors(expected)), list(tensors(got))
    if [path for path, _ in expected] != [path for path, _ in got]:
        return "other tensors"
    worst = 0.0
    for (path, a), (_, b) in zip(expected, got, strict=True):
        if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
            return f"{path}: {b.shape} {b.dtype} {b.stride()} instead of {a.shape} {a.dtype} {a.stride()}"
        if a.is_floating_point() and a.numel():
            worst = max(worst, ((a - b).abs().max() / a.abs().max().clamp_min(1e-9)).item())
        elif not torch.equal(a, b):
            return f"{path}: other numbers"
    return worst


def case_of(name, timm):
    """The model and what it is called with."""
    if timm:
        import timm

        model = timm.create_model(name).eval()
        return model, {next(iter(inspect.signature(model.forward).parameters)): image_of(name)}
    config, model = build(name)
    return model, inputs_of(config, model)


def image_of(name):
    import timm

    torch.manual_seed(1)
    return torch.randn(2, *timm.get_pretrained_cfg(name).input_size)


def smallest_of_timm(part, parts, count=2):
    import timm

    for module in timm.list_modules()[part - 1 :: parts]:
        sizes = {}
        for name in timm.list_models(module=module):
            with torch.device("meta"):
                try:
                    sizes[name] = sum(p.numel() for p in timm.create_model(name).parameters())
                except Exception:
                    continue  # made with numbers out of tensors
        yield from sorted(sizes, key=sizes.get)[:count]


def all_of_transformers(part, parts):
    return [name for name in CONFIG_MAPPING.keys() if CONFIG_MAPPING[name] in MODEL_MAPPING][part - 1 :: parts]


def one_more(inputs):
    """These inputs as a larger batch."""
    return {key: torch.cat([t, t[:1]]) for key, t in inputs.items()}


def seeded(call, inputs):
    torch.manual_seed(2)
    return call(**inputs)


def last_of_three(call, *args):
    """The first is eager's own, recorded; weights are packed at the second."""
    return [call(*args) for _ in range(3)][-1]


def gradients(call, model, inputs):
    model.zero_grad(set_to_none=True)
    results = [t for _, t in tensors(seeded(call, inputs)) if t.requires_grad]
    torch.autograd.backward([t.float().square().mean() for t in results])
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def measure(name, timm):
    try:
        model, inputs = case_of(name, timm)
        with torch.no_grad():
            expected, expected_larger = seeded(model, inputs), seeded(model, one_more(inputs))
        expected_gradients = gradients(model, model, inputs)
    except Exception as error:
        return {"skipped": f"{type(error).__name__}: {error}"[:200]}
    compiled = torchbolt.compile(model)
    warned = []
    logging.getLogger("torchbolt").addFilter(lambda record: warned.append(record.getMessage()[:300]))
    try:
        with torch.no_grad():
            got = last_of_three(seeded, compiled, inputs)
            stats = torchbolt.stats()
            larger = last_of_three(seeded, compiled, one_more(inputs))
        got_gradients = last_of_three(gradients, compiled, model, inputs)
    except Exception:
        return {"error": traceback.format_exc()[-1500:]}
    facts = {key: stats[key] for key in ("regions", "graph_breaks", "eager_fallbacks", "break_reasons")}
    facts["warnings"] = warned
    facts["difference"] = difference(expected, got)
    facts["difference_larger"] = difference(expected_larger, larger)
    return facts | {"difference_gradients": difference(expected_gradients, got_gradients)}


def apart(name, timm):
    """measure(name, timm) in a process of its own, so that a crash is a line too."""
    end, begin = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(SECONDS)
        os.write(begin, json.dumps(measure(name, timm)).encode())
        os._exit(0)
    os.close(begin)
    with os.fdopen(end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"crash": f"ended with status {status}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--timm", action="store_true")
    parser.add_argument("--part", default="1/1", help="of so many parts of the models, this one")
    args = parser.parse_args()
    torch.set_num_threads(1)
    part, parts = map(int, args.part.split("/"))
    for name in args.names or (smallest_of_timm if args.timm else all_of_transformers)(part, parts):
        print(json.dumps({"model": name} | apart(name, args.timm)), flush=True)


if __name__ == "__main__":
    main()
