# bench/curves.py
"""Loss curves: training with torchbolt beside eager runs that differ from each other by one rounding of the weights.

    python -m bench.curves [MODEL...] [--steps N] [--runs N] [--threads N] [--json FILE]

Each model is trained by eager as it is, by eager again with every weight moved to the next number up or down (`runs`
times, other directions each), and by torchbolt in two ways: the model compiled, and the whole step. All begin with the
same weights and see the same batches, and dropout draws from the same seed. The spread is the largest distance at any
step between the losses of two of eager's runs, over the first loss; torchbolt's distances are those from the run of
eager as it is, and should be no larger. A rounding may grow to anything where training is chaotic, so nothing smaller
can be asked for. The exit code is 1 where one is more than twice as large: so few runs do not tell the spread exactly.
"""

from __future__ import annotations

import argparse
import itertools
import json

import torch
import transformers

import torchbolt
from bench.forks import Fork
from bench.models import dlrm, lstm_lm

BATCHES = 8  # that are gone through again and again


def language_model(make, vocabulary, sizes):
    def case():
        model = make()
        batches = [(torch.randint(vocabulary, sizes),) for _ in range(BATCHES)]
        return model, batches, lambda m, ids: m(input_ids=ids, labels=ids).loss

    return case


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=500, n_embd=128, n_layer=3, n_head=4, n_positions=64, bos_token_id=None, eos_token_id=None
    )
    return transformers.GPT2LMHeadModel(config)


def images(make, side):
    def case():
        batches = [(torch.randn(8, 3, side, side), torch.randint(10, (8,))) for _ in range(BATCHES)]
        return make(), batches, lambda m, x, labels: torch.nn.functional.cross_entropy(m(x).logits, labels)

    return case


def resnet18():
    # The layers of ResNet-18, a quarter as wide.
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )
    return transformers.ResNetForImageClassification(config)


def vit():
    config = transformers.ViTConfig(
        hidden_size=96, num_hidden_layers=4, num_attention_heads=3, intermediate_size=384, image_size=32, patch_size=4,
        hidden_dropout_prob=0.1, num_labels=10,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def recommendations():
    model, _, _ = dlrm.build(batch=1, rows=200, hidden=64)
    batches = [
        (torch.randn(128, dlrm.DENSE), torch.randint(200, (dlrm.TABLES, 128, dlrm.BAG)), torch.rand(128).round())
        for _ in range(BATCHES)
    ]
    return model, batches, lambda m, x, ids, clicks: torch.nn.functional.binary_cross_entropy(m(x, ids), clicks)


def recurrent():
    model, _, _ = lstm_lm.build(hidden=96, layers=2, vocab=300, tokens=1, batch=1)
    batches = [(torch.randint(300, (8, 24)),) for _ in range(BATCHES)]

    def loss(m, ids):
        return torch.nn.functional.nll_loss(m(ids[:, :-1])[0].flatten(0, 1), ids[:, 1:].flatten())

    return model, batches, loss


MODELS = {
    "gpt2": language_model(gpt2, 500, (4, 32)),
    "resnet18": images(resnet18, 32),
    "vit": images(vit, 32),
    "dlrm": recommendations,
    "lstm": recurrent,
}


def nudged(state, seed):
    """Every weight moved to one of its two neighbours."""
    draw = torch.Generator().manual_seed(seed)

    def moved(t):
        if not t.is_floating_point():
            return t
        up = torch.rand(t.shape, generator=draw) < 0.5
        return torch.nextafter(t, torch.where(up, torch.inf, -torch.inf))

    return {name: moved(t) for name, t in state.items()}


def curve(model, state, batches, loss, steps, compiled="none"):
    """The losses of a run from these weights. compiled: "none", "model" or "step"."""
    torchbolt.reset()
    model.load_state_dict(state)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    called = torchbolt.compile(model) if compiled == "model" else model

    def step(*batch):
        optimizer.zero_grad()
        value = loss(called, *batch)
        value.backward()
        optimizer.step()
        return value.detach()

    if compiled == "step":
        step = torchbolt.compile(step)
    torch.manual_seed(2)
    return [step(*batch).item() for batch in itertools.islice(itertools.cycle(batches), steps)]


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def work(name, steps, runs, threads):
    """In a process of its own: what was measured."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, batches, loss = MODELS[name]()
    start = {key: t.clone() for key, t in model.state_dict().items()}
    plain = curve(model, start, batches, loss, steps)
    eager = [plain, *(curve(model, nudged(start, seed), batches, loss, steps) for seed in range(runs))]
    found = {"first": plain[0], "last": plain[-1]}
    found["spread"] = max(distance(a, b) for a, b in itertools.combinations(eager, 2)) / plain[0]
    for way in ("model", "step"):
        found[way] = distance(curve(model, start, batches, loss, steps, way), plain) / plain[0]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(unknown)}")
    print(f"{'model':9} {'first loss':>10} {'last':>8} {'spread':>9} {'model':>9} {'step':>9}")
    results, bad = {}, False
    for name in options.models or MODELS:
        r = results[name] = Fork(work, name, options.steps, options.runs, options.threads).result(3600)
        if "failed" in r:
            print(f"{name:9} failed: {r['failed']}", flush=True)
            bad = True
            continue
        within = "within" if max(r["model"], r["step"]) <= r["spread"] else "beyond"
        bad |= max(r["model"], r["step"]) > 2 * r["spread"]
        distances = " ".join(f"{r[key]:9.1e}" for key in ("spread", "model", "step"))
        print(f"{name:9} {r['first']:10.4f} {r['last']:8.4f} {distances} {within}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    raise SystemExit(bad)


if __name__ == "__main__":
    main()
