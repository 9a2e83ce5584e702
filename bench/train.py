# bench/train.py
"""Training steps (forward, loss, backward): torchbolt and torch.compile, each over eager.

    python -m bench.train [MODEL...] [--backends A,B] [--device cpu|cuda] [--whole] [--threads N] [--abreast N]
                          [--json FILE]

Each model and backend gets a process of its own, and a cache of its own. There, eager's steps and the compiled ones
take turns, and the speed is the median over the turns of one's time by the other's: what slows the machine for a while
slows both. For each: the first three steps less three eager ones (the first makes the optimizer's state, so it is
another program than those behind it), the same in a second process with the cache that was left, and the largest error
of a parameter's gradient against a float64 run, over eager's. Dropout is off: all compute the same.
On CUDA the models are of the size people train, in bfloat16, and the peaks of memory over a step are given as well.
--whole: the step has AdamW and clipping in it, and all of it is compiled. A backend with ":reduce-overhead" behind it
is asked for that mode. --abreast: torch.compile's first steps are made N at a time, which takes them longer; all else
is measured in the second process, which has the machine to itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

from bench.forks import Fork, abreast

BACKENDS = ("torchbolt", "torch.compile")
TURNS, FIRST = 12, 3


def text_model(kind, config, sizes, vocabulary, **settings):
    def make():
        import torch
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config)(vocab_size=vocabulary, **settings))
        return model, lambda m, x: m(input_ids=x, labels=x).loss, torch.randint(vocabulary, sizes)

    return make


def image_model(kind, config, sizes, **settings):
    def make():
        import torch
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config)(**settings))

        def call(m, x):  # labels made where they are used: a copy from the processor would wait for the device
            return m(pixel_values=x, labels=torch.zeros(sizes[0], dtype=torch.long, device=x.device)).loss

        return model, call, torch.randn(*sizes)

    return make


def mlp():
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)
    )
    labels = torch.arange(128) % 10
    return model, lambda m, x: nn.functional.cross_entropy(m(x), labels.to(x.device)), torch.randn(128, 64)


SMALL = dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4)
MODELS = {
    "mlp": mlp,
    "bert": text_model("BertForMaskedLM", "BertConfig", (4, 128), 5000, intermediate_size=1024, **SMALL),
    "gpt2": text_model("GPT2LMHeadModel", "GPT2Config", (4, 128), 5000, n_embd=256, n_layer=4, n_head=4),
    "llama": text_model("LlamaForCausalLM", "LlamaConfig", (4, 128), 5000, intermediate_size=688, **SMALL),
    "vit": image_model(
        "ViTForImageClassification",
        "ViTConfig",
        (4, 3, 96, 96),
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=96,
    ),
    "resnet": image_model(
        "ResNetForImageClassification",
        "ResNetConfig",
        (8, 3, 64, 64),
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        depths=[2, 2, 2, 2],
        layer_type="basic",
    ),
}

LARGE = {
    "gpt2": text_model("GPT2LMHeadModel", "GPT2Config", (8, 512), 50257),
    "bert": text_model("BertForMaskedLM", "BertConfig", (16, 512), 30522),
    "llama": text_model(
        "LlamaForCausalLM",
        "LlamaConfig",
        (4, 1024),
        32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=8,
    ),
    "vit": image_model("ViTForImageClassification", "ViTConfig", (64, 3, 224, 224)),
    "resnet": image_model("ResNetForImageClassification", "ResNetConfig", (64, 3, 224, 224)),
}


def models_for(device):
    return LARGE if device == "cuda" else MODELS


def timed(step, device):
    import torch

    begin = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def gradients(model, step):
    model.zero_grad()
    step()
    return {name: p.grad.detach().double().clone() for name, p in model.named_parameters() if p.grad is not None}


def largest_error(mine, eager, exact, rounding):
    """Over eager's, of the parameters whose gradient is more than noise. An error below that of one `rounding` is luck:
    the gradient of two biases is one number, which now and then lies next to the exact one."""
    scale = max(g.norm().item() for g in exact.values())
    ratios = []
    for name, want in exact.items():
        if want.norm() < 1e-6 * scale:
            continue
        ours, theirs = ((g[name] - want).norm() / want.norm() for g in (mine, eager))
        ratios.append((ours / max(theirs, rounding)).item())
    return max(ratios)


def peak_of(step):
    """Of the device's memory, in MB."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() / 1e6


def work(name, backend, device, threads, whole, first_only):
    """In a process of its own: what was measured."""
    import torch
    from torch import nn

    compiler, _, mode = backend.partition(":")
    if compiler == "torchbolt":
        from torchbolt import compile as compiled
    else:
        compiled = torch.compile

    def compile(what):
        return compiled(what, mode=mode or None)

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, loss, x = models_for(device)[name]()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.to(device).train()
    x = x.to(device)
    if device == "cuda":
        model.bfloat16()
        x = x.bfloat16() if x.is_floating_point() else x
    start = {key: value.clone() for key, value in model.state_dict().items()}

    def step_of(m):
        def step():
            model.zero_grad()
            loss(m, x).backward()

        return step

    def whole_step():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

        def step():
            optimizer.zero_grad()
            loss(model, x).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return step

    eager, fast = (whole_step(), compile(whole_step())) if whole else (step_of(model), step_of(compile(model)))
    for _ in range(2):
        before = timed(eager, device)
    first = sum(timed(fast, device) - before for _ in range(FIRST))
    if first_only:
        return {"first": first}
    fast()
    turns = [(timed(eager, device), timed(fast, device)) for _ in range(TURNS)]
    peaks = [peak_of(eager), peak_of(fast)] if device == "cuda" else [0, 0]
    found = []
    if not whole:
        for step in (eager, fast):
            model.load_state_dict(start)
            found.append(gradients(model, step))
        rounding = max(1e-7, torch.finfo(next(model.parameters()).dtype).eps / 2)
        model.load_state_dict(start)
        model.double()
        x = x.double() if x.is_floating_point() else x
        found.append(gradients(model, eager))
    return {
        "eager": statistics.median(a for a, _ in turns),
        "time": statistics.median(b for _, b in turns),
        "speed": statistics.median(a / b for a, b in turns),
        "second": first,
        "peaks": peaks,
        "error": largest_error(*found[1::-1], found[2], rounding) if found else 0,
    }


def in_fork(case, options, folder, first_only):
    """A Fork that measures (model, backend) with the cache that is its own below `folder`."""
    cache = os.path.join(folder, "-".join(case).replace(":", "-"))
    os.makedirs(cache, mode=0o700, exist_ok=True)
    places = {"TORCHBOLT_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
    return Fork(work, *case, options.device, options.threads, options.whole, first_only, **places)


def measured(cases, options, folder):
    """(model, backend) and what was measured of it, one after the other."""
    theirs = [case for case in cases if options.abreast > 1 and case[1].startswith("torch.compile")]
    first = abreast(lambda case: in_fork(case, options, folder, True), theirs, options.abreast)
    for case in cases:
        r = first.get(case) or in_fork(case, options, folder, True).result()
        yield case, r if "failed" in r else r | in_fork(case, options, folder, False).result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--abreast", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    if unknown := set(options.models) - set(models_for(options.device)):
        parser.error(f"no such model on {options.device}: {', '.join(unknown)}")
    results = []
    print(
        f"{'model':8} {'backend':14} {'eager ms':>9} {'ms':>9} {'speed':>6} {'first s':>8} {'second':>7} {'error':>6}"
        + " peak MB, eager's" * (options.device == "cuda")
    )
    import transformers.modeling_utils  # noqa: F401  the forks have it, too

    names = options.models or models_for(options.device)
    cases = [(name, backend) for name in names for backend in options.backends.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        for (name, backend), r in measured(cases, options, folder):
            results.append({"model": name, "backend": backend, **r})
            if "failed" in r:
                print(f"{name:8} {backend:14} failed: {r['failed']}", flush=True)
                continue
            print(
                f"{name:8} {backend:14} {r['eager'] * 1e3:9.2f} {r['time'] * 1e3:9.2f} {r['speed']:6.2f}"
                f" {r['first']:8.2f} {r['second']:7.2f} {r['error']:6.2f}"
                + (" {1:7.0f} {0:7.0f}".format(*r["peaks"]) if r["peaks"][0] else ""),
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
