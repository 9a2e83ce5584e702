# tests/observe/model_zoo.py
"""Observes the benchmark's kind of transformers models: no break, nothing unsound, guards that hold and are fast."""

import sys
import time
import traceback

import torch
import transformers as T
from helper import Seen

from torchbolt import _C

torch.manual_seed(0)
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100)
IDS = torch.randint(0, 100, (2, 16))
IMG = torch.randn(1, 3, 64, 64)


def models():
    yield (
        "mlp",
        lambda: (
            torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)),
            dict(input=torch.randn(3, 4)),
        ),
    )
    yield (
        "encoder",
        lambda: (
            torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 3),
            dict(src=torch.randn(2, 8, 32)),
        ),
    )
    yield "bert", lambda: (T.BertModel(T.BertConfig(**SMALL)), dict(input_ids=IDS))
    yield (
        "distilbert",
        lambda: (
            T.DistilBertModel(T.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=100)),
            dict(input_ids=IDS),
        ),
    )
    yield "roberta", lambda: (T.RobertaModel(T.RobertaConfig(**SMALL)), dict(input_ids=IDS))
    yield (
        "gpt2",
        lambda: (
            T.GPT2LMHeadModel(T.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100)),
            dict(input_ids=IDS),
        ),
    )
    yield (
        "llama",
        lambda: (T.LlamaForCausalLM(T.LlamaConfig(**SMALL, num_key_value_heads=2)), dict(input_ids=IDS)),
    )
    yield (
        "qwen3",
        lambda: (
            T.Qwen3ForCausalLM(T.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8)),
            dict(input_ids=IDS),
        ),
    )
    yield (
        "gemma3",
        lambda: (
            T.Gemma3ForCausalLM(T.Gemma3TextConfig(**SMALL, num_key_value_heads=2, head_dim=8)),
            dict(input_ids=IDS),
        ),
    )
    yield (
        "t5",
        lambda: (
            T.T5Model(T.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100)),
            dict(input_ids=IDS, decoder_input_ids=IDS),
        ),
    )
    yield (
        "vit",
        lambda: (
            T.ViTModel(
                T.ViTConfig(
                    hidden_size=32,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    intermediate_size=64,
                    image_size=64,
                    patch_size=16,
                )
            ),
            dict(pixel_values=IMG),
        ),
    )
    yield (
        "swin",
        lambda: (
            T.SwinModel(T.SwinConfig(image_size=64, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4)),
            dict(pixel_values=IMG),
        ),
    )
    yield (
        "convnext",
        lambda: (
            T.ConvNextModel(T.ConvNextConfig(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1])),
            dict(pixel_values=IMG),
        ),
    )
    yield (
        "resnet",
        lambda: (
            T.ResNetModel(T.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
            dict(pixel_values=IMG),
        ),
    )
    yield (
        "mobilenet",
        lambda: (T.MobileNetV2Model(T.MobileNetV2Config(image_size=64)), dict(pixel_values=IMG)),
    )
    yield (
        "segformer",
        lambda: (
            T.SegformerModel(T.SegformerConfig(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1])),
            dict(pixel_values=IMG),
        ),
    )
    yield (
        "whisper",
        lambda: (
            T.models.whisper.modeling_whisper.WhisperEncoder(
                T.WhisperConfig(
                    d_model=32,
                    encoder_layers=2,
                    encoder_attention_heads=4,
                    encoder_ffn_dim=64,
                    max_source_positions=50,
                )
            ),
            dict(input_features=torch.randn(1, 80, 100)),
        ),
    )
    yield (
        "clip",
        lambda: (
            T.CLIPVisionModel(
                T.CLIPVisionConfig(
                    hidden_size=32,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    intermediate_size=64,
                    image_size=64,
                    patch_size=16,
                )
            ),
            dict(pixel_values=IMG),
        ),
    )
    yield (
        "wav2vec2",
        lambda: (
            T.Wav2Vec2Model(
                T.Wav2Vec2Config(
                    hidden_size=32,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    intermediate_size=64,
                    conv_dim=(16, 16),
                    conv_stride=(5, 2),
                    conv_kernel=(10, 3),
                    num_conv_pos_embeddings=16,
                    num_conv_pos_embedding_groups=2,
                )
            ),
            dict(input_values=torch.randn(1, 1600)),
        ),
    )
    yield (
        "mamba",
        lambda: (
            T.MambaModel(T.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=8, vocab_size=100)),
            dict(input_ids=IDS),
        ),
    )


def main(names):
    for name, make in models():
        if names and name not in names:
            continue
        try:
            model, kwargs = make()
            model.eval()
            with torch.no_grad():
                start = time.perf_counter()
                want = model(**kwargs)
                eager = time.perf_counter() - start
                seen = None
                for attempt in range(2):
                    start = time.perf_counter()
                    seen = Seen(model, **kwargs)
                    spent = time.perf_counter() - start
                facts = seen.facts
                tensors = lambda o: [
                    t
                    for t in torch.utils._pytree.tree_leaves(dict(o) if hasattr(o, "items") else o)
                    if isinstance(t, torch.Tensor)
                ]
                same = all(torch.equal(a, b) for a, b in zip(tensors(want), tensors(seen.result)))
                ok = seen.again() if facts["end"] != "raised" else None
                us = _C._observe_time(seen.observation, model, (), kwargs, 200)
                print(
                    f"{name:10} {facts['end']:8} same={same} holds={ok} check={us and us * 1e6:.1f}us guards={len(facts['guards'])} tensors={facts['tensors']} record={spent * 1e3:.0f}ms eager={eager * 1e3:.0f}ms",
                    facts["breaks"],
                    facts["unsound"][:300],
                    "" if ok else seen.why(**kwargs),
                    flush=True,
                )
                if facts["end"] == "returned" and not facts["unsound"] and ok:
                    again = seen.rebuild(**kwargs)
                    assert type(again) is type(seen.result), type(again)
                    assert all(a is b for a, b in zip(tensors(again), tensors(seen.result)))
        except Exception:
            print(name, "RAISED", "".join(traceback.format_exc().splitlines(True)[-6:]), flush=True)


main(sys.argv[1:])
