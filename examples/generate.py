# examples/generate.py
"""Text generation by transformers' generate(): the decoder's forward is compiled, the loop around it stays Python."""

import torch
import transformers

import torchbolt


def main():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(3, 256, (2, 7))
    for cache in ("dynamic", "static"):
        settings = dict(max_new_tokens=8, do_sample=False, cache_implementation=cache, disable_compile=True)
        model.forward = type(model).forward.__get__(model)
        expected = model.generate(prompt, **settings)
        model.forward = torchbolt.compile(model.forward)
        got = model.generate(prompt, **settings)
        assert torch.equal(got, expected), cache
        print(f"{cache} cache: {got[0, 7:].tolist()}")
    stats = torchbolt.stats()
    print(f"regions {stats['regions']}, recordings {stats['recordings']}, eager fall-backs {stats['eager_fallbacks']}")


if __name__ == "__main__":
    main()
