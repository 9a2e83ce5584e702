# bench/peers.py
"""Models of usual sizes beside torch.compile on a CUDA device: inference in bfloat16, training under autocast.

    python -m bench.peers [MODEL[:infer|:train]...] [--backends eager,torchbolt,torch.compile] [--modes default,...]
                          [--abreast N] [--seconds N] [--json FILE]

Each case gets a process of its own: N are made at a time (imports, weights, first calls, warm-up), and one of them is
timed at a time. For each: ms a step over the best of three times up to 20 steps that nobody waits in between, ms that
the device is busy in a step (steps queued behind a long kernel), the first call in s, and the peak of a step in MB.
Text models take 8x256 tokens, image models `timm`'s own sizes. After --seconds no new case is begun, and what is
still made is given up.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import tempfile
import time

from bench.forks import Fork
from bench.gpu import on_device

WARM, QUEUED = 8, 20


def text(kind, config, sizes=(8, 256), encoder_decoder=False, **settings):
    def make(training):
        import torch
        import transformers

        facts = getattr(transformers, config)(**settings)
        model = getattr(transformers, kind)(facts)
        tokens = torch.randint(1, facts.vocab_size, sizes)
        more = {"decoder_input_ids": tokens} if encoder_decoder and not training else {}
        if training:
            return model, lambda m, x: m(input_ids=x, labels=x).loss, tokens
        return model, lambda m, x: m(input_ids=x, **dict.fromkeys(more, x), use_cache=False)[0], tokens

    return make


def images(name, batch, size=224, **settings):
    def make(training):
        import timm
        import torch

        model = timm.create_model(name, **settings)

        def loss(m, x):
            y = m(x)
            return torch.nn.functional.cross_entropy(y, torch.zeros(len(x), dtype=torch.long, device=x.device))

        return model, loss if training else lambda m, x: m(x), torch.randn(batch, 3, size, size)

    return make


def vision(kind, config, batch, size, **settings):
    def make(training):
        import torch
        import transformers

        model = getattr(transformers, kind)(getattr(transformers, config)(**settings))

        def call(m, x):
            y = m(pixel_values=x)[0]
            return y.float().square().mean() if training else y

        return model, call, torch.randn(batch, 3, size, size)

    return make


def wavenet(training):
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, width, dilation):
            super().__init__()
            self.gates = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
            self.out = nn.Conv1d(width, 2 * width, 1)
            self.dilation = dilation

        def forward(self, x):
            a, b = self.gates(nn.functional.pad(x, (self.dilation, 0))).chunk(2, 1)
            more, skip = self.out(a.tanh() * b.sigmoid()).chunk(2, 1)
            return x + more, skip

    class WaveNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Embedding(256, 64)
            self.layers = nn.ModuleList(Layer(64, 2 ** (i % 10)) for i in range(20))
            self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(64, 128, 1), nn.ReLU(), nn.Conv1d(128, 256, 1))

        def forward(self, x):
            h, total = self.first(x).transpose(1, 2), 0
            for layer in self.layers:
                h, skip = layer(h)
                total = total + skip
            return self.last(total)

    x = torch.randint(256, (8, 8000))
    loss = lambda m, x: nn.functional.cross_entropy(m(x)[:, :, :-1], x[:, 1:])  # noqa: E731
    return WaveNet(), loss if training else lambda m, x: m(x), x


def nerf(training):
    import torch
    from torch import nn

    class Nerf(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.ModuleList(nn.Linear(60 if i == 0 else 256, 256) for i in range(5))
            self.second = nn.ModuleList(nn.Linear(316 if i == 0 else 256, 256) for i in range(3))
            self.out = nn.Linear(256, 4)

        def forward(self, p):
            waves = p[..., None] * 2.0 ** torch.arange(10, device=p.device)
            encoded = torch.cat([waves.sin(), waves.cos()], -1).flatten(-2)
            h = encoded
            for layer in self.first:
                h = layer(h).relu()
            h = torch.cat([h, encoded], -1)
            for layer in self.second:
                h = layer(h).relu()
            color, density = self.out(h).split([3, 1], -1)
            alpha = 1 - torch.exp(-density.relu() * 0.02)
            seen = torch.cumprod(1 - alpha + 1e-10, 1) * alpha
            return (seen * color.sigmoid()).sum(1)

    x = torch.rand(4096, 64, 3)
    return Nerf(), (lambda m, x: m(x).float().square().mean()) if training else lambda m, x: m(x), x


def unet(training):
    import torch
    from torch import nn

    def double(a, b):
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
            nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self, widths=(64, 128, 256, 512)):
            super().__init__()
            self.down = nn.ModuleList(double(a, b) for a, b in zip((3, *widths), widths, strict=False))
            self.rise = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in itertools.pairwise(widths))
            self.up = nn.ModuleList(double(2 * a, a) for a in widths[:-1])
            self.out = nn.Conv2d(64, 2, 1)

        def forward(self, x):
            kept = []
            for i, block in enumerate(self.down):
                x = block(nn.functional.max_pool2d(x, 2) if i else x)
                kept.append(x)
            for i in reversed(range(len(self.up))):
                x = self.up[i](torch.cat([kept[i], self.rise[i](x)], 1))
            return self.out(x)

    def loss(m, x):
        return nn.functional.cross_entropy(m(x), torch.zeros(len(x), 192, 192, dtype=torch.long, device=x.device))

    return UNet(), loss if training else lambda m, x: m(x), torch.randn(8, 3, 192, 192)


def diffusion(training):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.one = nn.Sequential(nn.GroupNorm(32, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
            self.time = nn.Linear(512, b)
            self.two = nn.Sequential(nn.GroupNorm(32, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
            self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x, t):
            return self.skip(x) + self.two(self.one(x) + self.time(t)[:, :, None, None])

    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.GroupNorm(32, width)
            self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c // 64, 64, h * w).transpose(-1, -2).unbind(1)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return x + self.out(y.transpose(-1, -2).reshape(b, c, h, w))

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, 512))
            self.first = nn.Conv2d(4, 128, 3, padding=1)
            self.down = nn.ModuleList([Block(128, 128), Block(128, 256)])
            self.middle = nn.ModuleList([Block(256, 256), Attention(256), Block(256, 256)])
            self.up = nn.ModuleList([Block(512, 128), Block(256, 128)])
            self.last = nn.Sequential(nn.GroupNorm(32, 128), nn.SiLU(), nn.Conv2d(128, 4, 3, padding=1))

        def forward(self, x):
            steps = torch.arange(len(x), device=x.device)[:, None] * torch.arange(64, device=x.device)
            t = self.time(torch.cat([steps.sin(), steps.cos()], -1).to(x.dtype))
            x = self.first(x)
            one = self.down[0](x, t)
            two = self.down[1](nn.functional.avg_pool2d(one, 2), t)
            x = self.middle[2](self.middle[1](self.middle[0](two, t)), t)
            x = nn.functional.interpolate(self.up[0](torch.cat([x, two], 1), t), scale_factor=2)
            return self.last(self.up[1](torch.cat([x, one], 1), t))

    x = torch.randn(16, 4, 64, 64)
    loss = lambda m, x: nn.functional.mse_loss(m(x), x)  # noqa: E731
    return Denoiser(), loss if training else lambda m, x: m(x), x


BASE = dict(hidden_size=768, num_hidden_layers=8, num_attention_heads=12)
LARGER = dict(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, intermediate_size=2816)
MODELS = {
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", n_layer=8),
    "neox": text("GPTNeoXForCausalLM", "GPTNeoXConfig", intermediate_size=3072, vocab_size=50304, **BASE),
    "llama": text("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=8, **LARGER),
    "qwen3": text("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=8, vocab_size=50304, head_dim=64, **LARGER),
    "gemma2": text(
        "Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=4, vocab_size=50304, head_dim=64,
        intermediate_size=3072, **BASE,
    ),
    "mixtral": text(
        "MixtralForCausalLM", "MixtralConfig", num_key_value_heads=4, num_local_experts=4, intermediate_size=1536,
        hidden_size=768, num_hidden_layers=6, num_attention_heads=12,
    ),
    "electra": text("ElectraForMaskedLM", "ElectraConfig", intermediate_size=3072, **BASE),
    "deberta-v2": text("DebertaV2ForMaskedLM", "DebertaV2Config", vocab_size=50304, intermediate_size=3072, **BASE),
    "t5-small": text("T5ForConditionalGeneration", "T5Config", encoder_decoder=True, decoder_start_token_id=0),
    "dinov2": vision("Dinov2Model", "Dinov2Config", 16, 224, **BASE),
    "segformer": vision("SegformerForSemanticSegmentation", "SegformerConfig", 16, 224),
    "resnet50": images("resnet50", 64),
    "resnext50": images("resnext50_32x4d", 64),
    "regnety": images("regnety_032", 32),
    "efficientnet": images("efficientnet_b0", 64),
    "inception": images("inception_v4", 32, 299),
    "densenet": images("densenet121", 32),
    "convnextv2": images("convnextv2_tiny", 32),
    "maxvit": images("maxvit_tiny_rw_224", 16),
    "poolformer": images("poolformer_s12", 32),
    "swin": images("swin_tiny_patch4_window7_224", 32),
    "mobilenetv3": images("mobilenetv3_large_100", 64),
    "vgg16": images("vgg16", 32),
    "unet": unet,
    "diffusion": diffusion,
    "wavenet": wavenet,
    "nerf": nerf,
}  # fmt: skip


def step_ms(run):
    """The best of three times up to 20 steps, waited for once; fewer where a step takes long."""
    import torch

    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    count = max(3, min(QUEUED, int(0.5 / (time.perf_counter() - begin))))
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / count)
    return best * 1e3


def measure(name, phase, backend, lock):
    import torch

    torch.manual_seed(0)
    training = phase == "train"
    model, call, x = MODELS[name](training)
    model.cuda().train(training)
    x = x.cuda()
    if not training:
        model.bfloat16()
        x = x.bfloat16() if x.is_floating_point() else x
    compiler, _, mode = backend.partition(":")
    if compiler != "eager":
        from_module = __import__("torchbolt") if compiler == "torchbolt" else torch
        compiled = from_module.compile(model, mode=mode or None)
    else:
        compiled = model

    def infer():
        with torch.no_grad():
            call(compiled, x)

    def train():
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = call(compiled, x)
        loss.backward()

    step = train if training else infer
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    with open(lock, "w") as turn, contextlib.closing(turn):
        fcntl.flock(turn, fcntl.LOCK_EX)
        ms = step_ms(step)
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / 1e6
        return {"ms": ms, "device": on_device(step), "first": first, "peak": peak}


def begun(case, folder):
    cache = os.path.join(folder, "-".join(case).replace(":", "-"))
    os.makedirs(cache, mode=0o700, exist_ok=True)
    places = {"TORCHBOLT_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
    return Fork(measure, *case, os.path.join(folder, "turn"), **places)


def answers(cases, folder, abreast, seconds):
    """(case, answer) as they come."""
    end = time.monotonic() + seconds
    waiting, running = list(cases), {}
    while waiting or running:
        while waiting and len(running) < abreast and time.monotonic() < end:
            case = waiting.pop(0)
            running[case] = begun(case, folder)
        for case in [case for case, fork in running.items() if fork.ended()]:
            yield case, running.pop(case).result()
        if time.monotonic() > end + 60 or (waiting and not running):
            waiting.clear()
            for case, fork in running.items():
                yield case, fork.result(timeout=0)
            return
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--backends", default="eager,torchbolt,torch.compile")
    parser.add_argument("--modes", default="default,reduce-overhead")
    parser.add_argument("--abreast", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json")
    options = parser.parse_args()
    wanted = [name.partition(":") for name in options.models or MODELS]
    if unknown := {name for name, _, _ in wanted} - set(MODELS):
        parser.error(f"no such model: {', '.join(unknown)}")
    import transformers.modeling_utils  # noqa: F401  the forks have it, too

    cases = []
    for name, _, phase in wanted:
        for one in [phase] if phase else ["infer", "train"]:
            for backend in options.backends.split(","):
                modes = [""] if backend == "eager" else options.modes.split(",")
                for mode in modes:
                    cases.append((name, one, backend + (f":{mode}" if mode not in ("", "default") else "")))
    results = {}
    print(f"{'model':24} {'backend':30} {'ms':>8} {'device':>8} {'first s':>8} {'peak MB':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for (name, phase, backend), r in answers(cases, folder, options.abreast, options.seconds):
            results[f"{name}:{phase}/{backend}"] = r
            shown = f"{name + ':' + phase:24} {backend:30} "
            if "failed" in r:
                print(shown + f"failed: {r['failed']}", flush=True)
            else:
                print(shown + f"{r['ms']:8.3f} {r['device']:8.3f} {r['first']:8.2f} {r['peak']:8.0f}", flush=True)
            if options.json:
                with open(options.json, "w") as file:
                    json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
