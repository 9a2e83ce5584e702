# examples/skorch_classifier.py
"""skorch: a network as an estimator of scikit-learn. compile=True asks torch.compile: torchbolt, once installed."""

import numpy
import skorch
import torch

import torchbolt


def main():
    torchbolt.install()
    torch.manual_seed(0)
    rows = numpy.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    labels = (rows.sum(1) > 0).astype("int64")
    classifier = skorch.NeuralNetClassifier(
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)),
        criterion=torch.nn.CrossEntropyLoss, lr=0.5, max_epochs=10, train_split=None, verbose=0, compile=True,
    )  # fmt: skip
    classifier.fit(rows, labels)
    score = classifier.score(rows, labels)
    assert score > 0.8, score
    stats = torchbolt.stats()
    assert stats["recordings"] > 0
    print(f"score {score:.2f}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
