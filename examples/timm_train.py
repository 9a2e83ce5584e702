# examples/timm_train.py
"""timm, as its training script does it: create_model, its loss and optimiser, then a step over the compiled model."""

import timm
import timm.loss
import timm.optim
import torch

import torchbolt


def main():
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", pretrained=False, num_classes=4)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    criterion = timm.loss.LabelSmoothingCrossEntropy()
    compiled = torchbolt.compile(model)
    images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 4, (8,))
    losses = []
    for _ in range(3):
        loss = criterion(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(images), model(images), rtol=1e-3, atol=1e-4)
    stats = torchbolt.stats()
    print(f"losses {[round(x, 3) for x in losses]}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
