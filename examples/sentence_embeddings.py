# examples/sentence_embeddings.py
"""sentence-transformers: the transformer in the pipeline is compiled; tokenising and pooling stay as they are."""

import pathlib
import tempfile

import torch
import transformers
from sentence_transformers import SentenceTransformer, models

import torchbolt

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "line", "of", "code", "makes", "it", "fast"]


def small_model(folder: pathlib.Path) -> str:
    """A BERT with a dozen words, as from_pretrained finds it."""
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


def main():
    torch.manual_seed(0)
    texts = ["one line of code", "makes it fast"]
    with tempfile.TemporaryDirectory() as folder:
        words = models.Transformer(small_model(pathlib.Path(folder)))
        encoder = SentenceTransformer(modules=[words, models.Pooling(32)], device="cpu")
        expected = encoder.encode(texts)
        words.auto_model.forward = torchbolt.compile(words.auto_model.forward)
        for _ in range(3):
            got = encoder.encode(texts)
    worst = abs(got - expected).max()
    assert worst < 1e-4, worst
    stats = torchbolt.stats()
    assert stats["recordings"] > 0
    print(f"difference {worst:.1e}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
