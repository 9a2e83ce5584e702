# examples/trainer.py
"""transformers' Trainer: torch_compile=True asks torch.compile, which install() makes torchbolt."""

import tempfile

import torch
import transformers

import torchbolt


class Texts(torch.utils.data.Dataset):
    """Sixteen rows of random words; the label says whether the first is even."""

    def __len__(self):
        return 16

    def __getitem__(self, i):
        words = torch.randint(3, 200, (12,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": words, "labels": words[0] % 2}


def main():
    torchbolt.install()
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    model = transformers.BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder, max_steps=4, per_device_train_batch_size=4, torch_compile=True, report_to=[],
            save_strategy="no", logging_steps=1, disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        result = transformers.Trainer(model=model, args=settings, train_dataset=Texts()).train()
    stats = torchbolt.stats()
    assert stats["recordings"] > 0
    print(f"loss {result.training_loss:.3f}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
