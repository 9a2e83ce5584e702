# examples/peft_lora.py
"""peft: a model with LoRA adapters is compiled as a whole; only the adapters get gradients, and their names stay."""

import peft
import torch
import transformers

import torchbolt


def main():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    adapters = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config), adapters)
    compiled = torchbolt.compile(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    ids = torch.randint(0, 128, (2, 12))
    losses = []
    for _ in range(6):
        loss = compiled(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all("lora" in name for name in peft.get_peft_model_state_dict(compiled))
    stats = torchbolt.stats()
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
