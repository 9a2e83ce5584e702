# bench/gpu.py
"""Models on a CUDA device: eager, torchbolt and torch.compile side by side, each in a process of its own.

    python -m bench.gpu [MODEL...] [--backends eager,torchbolt,torch.compile] [--abreast N] [--json FILE]

A backend with ":reduce-overhead" behind it is asked for that mode. For each: the median of single steps, each waited
for; the device's time of a step, many of them queued behind a long kernel, so that the host does not count; the first
call less an eager one, with an empty cache and in a second process; peak memory, and what the allocator holds after a
call, recordings' pools included; and the largest distance of the result from that of the same model in float32.
`--abreast N` makes torch.compile's first calls N at a time, which takes them longer: all else is measured in the second
process, which has the device to itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time

from bench.forks import Fork, abreast

BACKENDS = ("eager", "torchbolt", "torchbolt:reduce-overhead", "torch.compile", "torch.compile:reduce-overhead")
STEPS, WARM, QUEUED = 40, 8, 20


def text_model(kind, config, sizes, loss=False, **settings):
    def make():
        import torch
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()
        tokens = torch.randint(0, 30000, sizes)
        if loss:
            return model, lambda m, x: m(x, labels=x).loss, tokens
        return model, lambda m, x: m(x)[0], tokens

    return make


def image_model(kind, config, batch, **settings):
    def make():
        import torch
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()
        return model, lambda m, x: m(x).logits, torch.randn(batch, 3, 224, 224)

    return make


def timm_model(name, batch):
    def make():
        import timm
        import torch

        return timm.create_model(name).eval(), lambda m, x: m(x), torch.randn(batch, 3, 224, 224)

    return make


MODELS = {
    "bert 16x512": text_model("BertModel", "BertConfig", (16, 512)),
    "gpt2 8x512, loss": text_model("GPT2LMHeadModel", "GPT2Config", (8, 512), loss=True),
    "llama 1b 1x128": text_model(
        "LlamaForCausalLM",
        "LlamaConfig",
        (1, 128),
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=32000,
    ),
    "vit-b 64": image_model("ViTForImageClassification", "ViTConfig", 64),
    "resnet-50 64": image_model("ResNetForImageClassification", "ResNetConfig", 64),
    "convnext-t 64": image_model("ConvNextForImageClassification", "ConvNextConfig", 64),
    "mobilenetv3-l 64": timm_model("mobilenetv3_large_100", 64),
}


def median(times):
    return sorted(times)[len(times) // 2]


def steps(run):
    import torch

    times = []
    for i in range(WARM + STEPS):
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if i >= WARM:
            times.append(time.perf_counter() - begin)
    return median(times) * 1e3


def on_device(run):
    """Milliseconds of a step when the device never waits for the host."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000_000)
    begin.record()
    for _ in range(QUEUED):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / QUEUED


def measure(name, backend, first_only=False):
    import torch

    torch.manual_seed(0)
    model, call, example = MODELS[name]()
    exact_model = model.cuda()
    floats = example.is_floating_point()
    with torch.no_grad():
        exact = call(exact_model, example.cuda()).double().cpu()
        model = exact_model.bfloat16()
        x = example.cuda().bfloat16() if floats else example.cuda()
        eager_times = [0.0, 0.0]
        for i in range(2):
            begin = time.perf_counter()
            call(model, x)
            torch.cuda.synchronize()
            eager_times[i] = time.perf_counter() - begin
        compiler, _, mode = backend.partition(":")
        if compiler == "torchbolt":
            import torchbolt

            model = torchbolt.compile(model, mode=mode or None)
        elif compiler == "torch.compile":
            model = torch.compile(model, mode=mode or None)
        torch.cuda.empty_cache()
        begin = time.perf_counter()
        got = call(model, x).clone()  # torch.compile's recordings write over what they gave before
        torch.cuda.synchronize()
        first = time.perf_counter() - begin - eager_times[1]
        if first_only:
            return {"first": first}
        step = steps(lambda: call(model, x))
        torch.cuda.reset_peak_memory_stats()
        call(model, x)
        peak = torch.cuda.max_memory_allocated() >> 20
        torch.cuda.empty_cache()
        call(model, x)
        held = torch.cuda.memory_reserved() >> 20
        device = on_device(lambda: call(model, x))
    error = (got.double().cpu() - exact).abs().max().item()
    return {"step": step, "device": device, "first": first, "peak": peak, "held": held, "error": error}


def in_fork(case, folder, first_only=False):
    """A Fork that measures (model, backend) with the caches that are its own below `folder`."""
    cache = os.path.join(folder, *(part.replace(" ", "_").replace(":", "_") for part in case))
    os.makedirs(cache, mode=0o700, exist_ok=True)
    places = {"TORCHBOLT_CACHE_DIR": f"{cache}/ours", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/theirs"}
    return Fork(measure, *case, first_only, **places, TRITON_CACHE_DIR=f"{cache}/theirs/triton")


def first_calls(cases, folder, most):
    """(model, backend) -> its first call with an empty cache."""
    compiled = [case for case in cases if case[1] != "eager"]
    theirs = [case for case in compiled if case[1].startswith("torch.compile")]
    found = abreast(lambda case: in_fork(case, folder, True), theirs, most)
    return found | {case: in_fork(case, folder, True).result() for case in compiled if case not in found}


def row(case, r):
    name, backend = case
    if "failed" in r:
        return f"| {name} | {backend} | failed: {r['failed']} |"
    calls = "| | |" if backend == "eager" else f"| {r['cold']:.2f} | {r['first']:.2f} |"
    memory = f"{r['peak']} | {r['held']}"
    return f"| {name} | {backend} | {r['step']:.3f} | {r['device']:.3f} {calls} {memory} | {r['error']:.3g} |"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="*", default=list(MODELS))
    arguments.add_argument("--backends", default=",".join(BACKENDS))
    arguments.add_argument("--abreast", type=int, default=1)
    arguments.add_argument("--json")
    given = arguments.parse_args()
    import torch
    import transformers.modeling_utils  # noqa: F401  the forks have it, too

    card = Fork(lambda: {"name": torch.cuda.get_device_name()}).result()
    if "failed" in card:
        sys.exit(f"bench.gpu needs a CUDA device: {card['failed'][0]}")
    print(f"{card['name']}, torch {torch.__version__}, bfloat16", flush=True)
    cases = [(name, backend) for name in given.models for backend in given.backends.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        cold = first_calls(cases, folder, given.abreast)
        columns = ("step ms", "device ms", "first call s", "second s", "peak MB", "held MB", "error")
        print("| model | backend | " + " | ".join(columns) + " |", flush=True)
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
        results = {}
        for case in cases:
            r = in_fork(case, folder).result()
            first = cold.get(case, {})
            results["/".join(case)] = r = first if "failed" in first else r | {"cold": first.get("first")}
            print(row(case, r), flush=True)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
