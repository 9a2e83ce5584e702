# bench/models/hf.py
"""Sizes -> (transformers model, args, kwargs). Configurations by hand, no downloads.

The decoders run one prefill without a cache: what a server does once a prompt. RoBERTa and CLIP take an
attention mask with padding, as a tokenizer gives it; the others take none.
"""

from __future__ import annotations

import torch
import transformers as tf

VOCAB = 1000
BATCH = 2


def _ids(tokens, batch=BATCH):
    return torch.randint(3, VOCAB, (batch, tokens))


def _padding(tokens):
    """A mask whose second row is a quarter padding."""
    mask = torch.ones(BATCH, tokens, dtype=torch.long)
    mask[1, tokens - tokens // 4 :] = 0
    return mask


def _image(size, batch=1):
    return torch.randn(batch, 3, size, size)


def bert(hidden, layers, heads, tokens):
    config = tf.BertConfig(
        vocab_size=VOCAB,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    return tf.BertModel(config), (), {"input_ids": _ids(tokens)}


def distilbert(hidden, layers, heads, tokens):
    config = tf.DistilBertConfig(vocab_size=VOCAB, dim=hidden, n_layers=layers, n_heads=heads, hidden_dim=4 * hidden)
    return tf.DistilBertForSequenceClassification(config), (), {"input_ids": _ids(tokens)}


def roberta(hidden, layers, heads, tokens):
    config = tf.RobertaConfig(
        vocab_size=VOCAB,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    return tf.RobertaModel(config), (), {"input_ids": _ids(tokens), "attention_mask": _padding(tokens)}


def gpt2(hidden, layers, heads, tokens):
    config = tf.GPT2Config(
        vocab_size=8 * VOCAB,
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return tf.GPT2LMHeadModel(config), (), {"input_ids": _ids(tokens)}


def _decoder(config_class, model_class, hidden, layers, heads, kv_heads, tokens, **more):
    config = config_class(
        vocab_size=4 * VOCAB,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate_size=8 * hidden // 3 // 8 * 8,
        max_position_embeddings=512,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **more,
    )
    return model_class(config), (), {"input_ids": _ids(tokens)}


def llama(**sizes):
    return _decoder(tf.LlamaConfig, tf.LlamaForCausalLM, **sizes)


def qwen3(**sizes):
    return _decoder(tf.Qwen3Config, tf.Qwen3ForCausalLM, **sizes)


def gemma3(window, **sizes):
    layers = sizes["layers"]
    kinds = ["full_attention" if i % 3 == 2 else "sliding_attention" for i in range(layers)]
    return _decoder(
        tf.Gemma3TextConfig,
        tf.Gemma3ForCausalLM,
        sliding_window=window,
        layer_types=kinds,
        query_pre_attn_scalar=sizes["hidden"] // sizes["heads"],
        **sizes,
    )


def t5(hidden, layers, heads, tokens):
    config = tf.T5Config(
        vocab_size=VOCAB,
        d_model=hidden,
        d_kv=hidden // heads,
        d_ff=4 * hidden,
        num_layers=layers,
        num_heads=heads,
        use_cache=False,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    return (
        tf.T5ForConditionalGeneration(config),
        (),
        {"input_ids": _ids(tokens), "decoder_input_ids": _ids(tokens // 2)},
    )


def vit(hidden, layers, heads, image, patch):
    config = tf.ViTConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        image_size=image,
        patch_size=patch,
        num_labels=100,
    )
    return tf.ViTForImageClassification(config), (), {"pixel_values": _image(image)}


def swin(width, depths, heads, image, window):
    config = tf.SwinConfig(
        image_size=image,
        patch_size=4,
        embed_dim=width,
        depths=list(depths),
        num_heads=list(heads),
        window_size=window,
        num_labels=100,
    )
    return tf.SwinForImageClassification(config), (), {"pixel_values": _image(image)}


def convnext(widths, depths, image):
    config = tf.ConvNextConfig(
        hidden_sizes=list(widths),
        depths=list(depths),
        num_stages=len(depths),
        image_size=image,
        layer_scale_init_value=0.5,
        num_labels=100,
    )
    return tf.ConvNextForImageClassification(config), (), {"pixel_values": _image(image)}


def resnet50(widths, depths, stem, image):
    config = tf.ResNetConfig(embedding_size=stem, hidden_sizes=list(widths), depths=list(depths), num_labels=100)
    return tf.ResNetForImageClassification(config), (), {"pixel_values": _image(image)}


def mobilenetv2(width, image):
    config = tf.MobileNetV2Config(depth_multiplier=width, image_size=image, num_labels=100)
    return tf.MobileNetV2ForImageClassification(config), (), {"pixel_values": _image(image)}


def segformer(widths, heads, image):
    n = len(widths)
    config = tf.SegformerConfig(
        num_encoder_blocks=n,
        depths=[2] * n,
        sr_ratios=[8, 4, 2, 1][4 - n :],
        hidden_sizes=list(widths),
        patch_sizes=[7, 3, 3, 3][:n],
        strides=[4, 2, 2, 2][:n],
        num_attention_heads=list(heads),
        mlp_ratios=[4] * n,
        decoder_hidden_size=widths[-1],
        num_labels=20,
    )
    return tf.SegformerForSemanticSegmentation(config), (), {"pixel_values": _image(image)}


def whisper(hidden, layers, heads, frames):
    config = tf.WhisperConfig(
        d_model=hidden,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * hidden,
        decoder_layers=1,
        decoder_attention_heads=heads,
        decoder_ffn_dim=4 * hidden,
        max_source_positions=frames,
        vocab_size=VOCAB,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    features = torch.randn(1, config.num_mel_bins, 2 * frames)
    return tf.WhisperModel(config).get_encoder(), (), {"input_features": features}


def clip(hidden, layers, heads, tokens, image, patch):
    shape = dict(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden)
    text = dict(shape, vocab_size=VOCAB, max_position_embeddings=tokens, bos_token_id=0, eos_token_id=2)
    config = tf.CLIPConfig(
        text_config=text, vision_config=dict(shape, image_size=image, patch_size=patch), projection_dim=hidden
    )
    ids = _ids(tokens)
    ids[:, -1] = 2
    return (
        tf.CLIPModel(config),
        (),
        {"input_ids": ids, "attention_mask": _padding(tokens), "pixel_values": _image(image, 2)},
    )


def wav2vec2(hidden, layers, heads, conv, samples):
    config = tf.Wav2Vec2Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        conv_dim=(conv,) * 7,
        vocab_size=32,
        num_conv_pos_embedding_groups=4,
    )
    return tf.Wav2Vec2ForCTC(config), (), {"input_values": torch.randn(1, samples)}


def mamba(hidden, layers, tokens):
    config = tf.MambaConfig(
        vocab_size=VOCAB,
        hidden_size=hidden,
        num_hidden_layers=layers,
        state_size=8,
        use_cache=False,
        use_associative_scan=False,  # the plain recurrence, also where torch.compile would be offered the operator
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return tf.MambaForCausalLM(config), (), {"input_ids": _ids(tokens)}
