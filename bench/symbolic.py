# bench/symbolic.py
"""Random sizes on BERT, GPT-2 and ResNet: how often is compiled, what a new size costs, and how far the program for
all sizes lies behind one compiled for that size alone.

    python -m bench.symbolic [--sizes 100] [--layers 4]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch

import torchbolt


def bert(layers):
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=layers, hidden_size=256, num_attention_heads=4, intermediate_size=1024)
    return BertModel(config), lambda b, s: {
        "input_ids": torch.randint(0, 1000, (b, s)),
        "attention_mask": torch.ones(b, s, dtype=torch.long),
    }


def gpt2(layers):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=256, n_head=4, vocab_size=5000))
    return model, lambda b, s: {"input_ids": torch.randint(0, 1000, (b, s)), "use_cache": False}


def resnet(layers):
    from transformers import ResNetConfig, ResNetModel

    model = ResNetModel(ResNetConfig(depths=[1, 1, 1, 1], hidden_sizes=[64, 128, 256, 512]))
    return model, lambda b, s: {"pixel_values": torch.randn(b, 3, 64, 64)}


def seconds(fn, kwargs, times):
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        fn(**kwargs)
        taken.append(time.perf_counter() - begin)
    return taken


@torch.no_grad()
def measure(make, count, layers):
    torch.manual_seed(0)
    rng = random.Random(0)
    model, inputs = make(layers)
    model.eval()
    torchbolt.reset()
    symbolic = torchbolt.compile(model, recompile_limit=64)
    extra, compiles_at = [], []
    for n in range(count):
        b, s = rng.randrange(2, 9), rng.randrange(8, 129)
        kwargs = inputs(b, s)
        before = torchbolt.stats()["regions"]
        first, *later = seconds(symbolic, kwargs, 4)
        if torchbolt.stats()["regions"] > before:
            compiles_at.append(n)
        else:
            extra.append(first - statistics.median(later))
    ratios = []
    for b, s in [(2, 32), (4, 64), (8, 128), (8, 100)]:
        kwargs = inputs(b, s)
        static = torchbolt.compile(model, dynamic=False, recompile_limit=64)
        for fn in (static, symbolic):
            seconds(fn, kwargs, 3)
        pairs = [(seconds(static, kwargs, 1)[0], seconds(symbolic, kwargs, 1)[0]) for _ in range(15)]
        ratios.append(statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs))
    return {"compiles": len(compiles_at), "calls": compiles_at, "new size ms": 1e3 * statistics.median(extra),
            "to static": ratios}  # fmt: skip


MODELS = {"bert": bert, "gpt2": gpt2, "resnet": resnet}


def table(sizes=100, layers=4) -> dict[str, dict]:
    """Prints a line for each model; what was measured of it."""
    rows = {}
    for name, make in MODELS.items():
        row = rows[name] = measure(make, sizes, layers)
        print(
            f"{name:8} compiles {row['compiles']} (calls {row['calls']}); a new size costs {row['new size ms']:.2f} ms "
            f"more than a known one (median); speed relative to the static program: "
            f"{', '.join(f'{r:.2f}' for r in row['to static'])}",
            flush=True,
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=100)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    table(args.sizes, args.layers)


if __name__ == "__main__":
    main()
