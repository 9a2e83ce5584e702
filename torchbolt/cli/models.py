# torchbolt/cli/models.py
"""A name of transformers or timm -> a small model with random weights and inputs for it. Nothing is downloaded.

Configurations are made small by a table of the names that transformers uses for sizes: a configuration takes those that
it knows. Inputs follow from the names of forward's parameters.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import os
import re

import torch

from torchbolt.cli.errors import UsageError
from torchbolt.options import suggest

LARGEST = 20_000_000  # parameters of a model that counts as small

# fmt: off
TINY = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 96, "vocab_size": 128, "max_position_embeddings": 64, "embedding_size": 64,
    "d_model": 64, "d_kv": 16, "d_ff": 96, "ffn_dim": 96, "dim": 64, "hidden_dim": 96,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "num_encoder_layers": 2, "num_decoder_layers": 2,
    "num_layers": 2, "num_heads": 4, "n_layers": 2, "n_heads": 4, "num_hidden_groups": 1,
    "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 96, "rotary_dim": 8,
    "image_size": 32, "patch_size": 8, "max_source_positions": 64, "max_target_positions": 64,
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_routed_experts": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 16, "sliding_window": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
# fmt: on


def tiny(config_class) -> dict:
    """The small sizes that a configuration knows."""
    known = set(inspect.signature(config_class.__init__).parameters)
    for cls in config_class.__mro__:
        known |= set(getattr(cls, "__annotations__", {}))
    return {name: value for name, value in TINY.items() if name in known}


def demo() -> tuple:
    """What diagnose and benchmark measure where they get no TARGET: an encoder, and its input."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        return model, torch.randn(4, 128, 512)


def small_config(config_class, **more):
    """The configuration, and those it is made of, with small sizes."""
    settings = tiny(config_class)
    for part, cls in (getattr(config_class, "sub_configs", None) or {}).items():
        if inspect.isclass(cls) and cls.__name__ != "AutoConfig":
            settings[part] = tiny(cls)
    return config_class(**settings | more)


def parameters_without_memory(cls, config) -> int:
    """How many a model has that may be too large to be made. Those that need real tensors to be made are small."""
    try:
        with torch.device("meta"):
            return sum(p.numel() for p in cls(copy.deepcopy(config)).parameters())
    except Exception:
        return 0


def inputs_of(config, model) -> dict:
    """Keyword arguments for one call of a transformers model."""
    wanted = inspect.signature(model.forward).parameters
    torch.manual_seed(1)
    made = {}
    if "input_ids" in wanted:
        made["input_ids"] = torch.randint(3, 100, (2, 16))
    if "decoder_input_ids" in wanted:
        made["decoder_input_ids"] = torch.randint(3, 100, (2, 8))
    if "pixel_values" in wanted:
        size = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", 64)
        size = size[0] if isinstance(size, tuple | list) else size
        made["pixel_values"] = torch.randn(2, getattr(config, "num_channels", 3) or 3, size, size)
    if not made and "input_values" in wanted:
        made["input_values"] = torch.randn(2, 4000)
    if not made and "input_features" in wanted:
        made["input_features"] = torch.randn(2, getattr(config, "num_mel_bins", 80), 128)
    return made


def _family(name: str, mapping) -> str | None:
    """The type of model a name belongs to: itself, or what the name of a checkpoint begins with."""
    last = name.rsplit("/", 1)[-1].lower()
    known = {kind.replace("-", "_"): kind for kind in mapping}
    parts = re.split(r"[-_.]", last)
    for count in range(len(parts), 0, -1):
        if (kind := known.get("_".join(parts[:count]))) is not None:
            return kind
    return None


def _classes(name: str, transformers):
    """The configuration's class and the model's."""
    if name.isidentifier() and inspect.isclass(cls := getattr(transformers, name, None)):
        if issubclass(cls, transformers.PreTrainedModel):
            return cls.config_class, cls
        if issubclass(cls, transformers.PreTrainedConfig):
            return cls, _first(transformers.MODEL_MAPPING[cls])
    kind = _family(name, transformers.CONFIG_MAPPING)
    if kind is None:
        return None
    config_class = transformers.CONFIG_MAPPING[kind]
    if config_class not in transformers.MODEL_MAPPING:
        raise UsageError(f"transformers has no model of its own for {kind!r}; name its class, as in BertForMaskedLM")
    return config_class, _first(transformers.MODEL_MAPPING[config_class])


def _first(models):
    return models[0] if isinstance(models, tuple | list) else models


def of_transformers(name: str, full_size: bool = False):
    """(title, model, keyword arguments); None: transformers knows no such name."""
    transformers = importlib.import_module("transformers")
    found = _classes(name, transformers)
    if found is None:
        return None
    config_class, cls = found
    config = config_class() if full_size else small_config(config_class)
    if not full_size and parameters_without_memory(cls, config) > LARGEST:
        raise UsageError(f"{cls.__name__} does not become small; --full-size takes the configuration's own sizes")
    torch.manual_seed(0)
    model = cls(config).eval()
    kwargs = inputs_of(config, model)
    if not kwargs:
        raise UsageError(f"{cls.__name__} takes inputs that are not known here: give them with --input NAME=SIZES")
    return f"{cls.__name__} ({'full size' if full_size else 'small'})", model, kwargs


def of_timm(name: str):
    """(title, model, keyword arguments); None: timm knows no such name. A model has the size that its name says."""
    timm = importlib.import_module("timm")
    if not timm.is_model(name):
        return None
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    sizes = timm.get_pretrained_cfg(name).input_size if timm.get_pretrained_cfg(name) else (3, 224, 224)
    first = next(iter(inspect.signature(model.forward).parameters))
    torch.manual_seed(1)
    return f"{name} (timm)", model, {first: torch.randn(2, *sizes)}


# Prefix -> the package, and what makes its models.
_PACKAGES = {"hf": ("transformers", of_transformers), "timm": ("timm", lambda name, _: of_timm(name))}


def named(name: str, full_size: bool = False):
    """(title, model, keyword arguments) for bert, hf:bert, BertModel, bert-base-uncased, timm:resnet18, resnet18."""
    prefix, _, rest = name.partition(":")
    asked = {prefix: _PACKAGES[prefix]} if prefix in _PACKAGES and rest else _PACKAGES
    missing = []
    for package, make in asked.values():
        if importlib.util.find_spec(package) is None:
            missing.append(package)
        elif (found := make(rest if len(asked) == 1 else name, full_size)) is not None:
            return found
    word = rest if len(asked) == 1 else name
    raise UsageError(_unknown(name, word, missing, any(package == "transformers" for package, _ in asked.values())))


def _unknown(name: str, word: str, missing: list[str], in_transformers: bool) -> str:
    """What was looked for, and what is nearest to it: a file here, or a configuration."""
    text = f"{name!r} is no module:function, no file, and no configuration of transformers or timm"
    if missing:
        text += f" (not installed here: {', '.join(missing)}; pip install {' '.join(missing)})"
    known = [file for file in os.listdir() if file.endswith(".py")] if word == name else []
    if in_transformers and "transformers" not in missing:
        known += importlib.import_module("transformers").CONFIG_MAPPING
    if f"{word}.py" in known:
        known = [f"{word}.py"]
    return text + "." + (suggest(word, known) if known else "")
