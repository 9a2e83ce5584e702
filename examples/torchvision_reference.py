# examples/torchvision_reference.py
"""torchvision's references for classification: model, loss, SGD and a schedule, then evaluation; compiled."""

import torch
import torchvision

import torchbolt


def main():
    torch.manual_seed(0)
    model = torchvision.models.get_model("mobilenet_v3_small", weights=None, num_classes=4)
    compiled = torchbolt.compile(model)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 4, (4,))
    for _ in range(2):
        loss = criterion(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.inference_mode():
        for _ in range(3):
            torch.testing.assert_close(compiled(images), model(images), rtol=1e-3, atol=1e-4)
    stats = torchbolt.stats()
    print(f"loss {loss.item():.3f}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
