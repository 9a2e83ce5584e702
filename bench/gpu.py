# bench/gpu.py
"""Models on a CUDA device: eager, torchbolt and torch.compile side by side, each in a process of its own.

    python -m bench.gpu [MODEL...] [--backends eager,torchbolt,torch.compile] [--json FILE]

A backend with ":reduce-overhead" behind it is asked for that mode. For each: the median of single steps, each waited
for; the device's time of a step, many of them queued behind a long kernel, so that the host does not count; the first
call less an eager one; peak memory; and the largest distance of the result from that of the same model in float32.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

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


def measure(name, backend):
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
        step = steps(lambda: call(model, x))
        torch.cuda.reset_peak_memory_stats()
        call(model, x)
        peak = torch.cuda.max_memory_allocated() >> 20
        device = on_device(lambda: call(model, x))
    error = (got.double().cpu() - exact).abs().max().item()
    return {"step": step, "device": device, "first": first, "peak": peak, "error": error}


def in_process(name, backend):
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, TORCHBOLT_CACHE_DIR=f"{cache}/ours", TORCHINDUCTOR_CACHE_DIR=f"{cache}/theirs")
        command = [sys.executable, "-m", "bench.gpu", "--one", name, backend]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="*", default=list(MODELS))
    arguments.add_argument("--backends", default=",".join(BACKENDS))
    arguments.add_argument("--json")
    arguments.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(measure(*given.one)))
        return
    import torch

    if not torch.cuda.is_available():
        sys.exit("bench.gpu needs a CUDA device")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16", flush=True)
    print(
        "| model | backend | step ms | device ms | first call s | peak MB | error |\n|---|---|---:|---:|---:|---:|---:|"
    )
    results = {}
    for name in given.models:
        for backend in given.backends.split(","):
            r = results[f"{name}/{backend}"] = in_process(name, backend)
            if "failed" in r:
                print(f"| {name} | {backend} | failed: {r['failed']} |", flush=True)
                continue
            print(
                f"| {name} | {backend} | {r['step']:.3f} | {r['device']:.3f} | {r['first']:.2f} | {r['peak']} | "
                f"{r['error']:.3g} |",
                flush=True,
            )
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
