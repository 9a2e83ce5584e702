# examples/accelerate_loop.py
"""Accelerate: the compiled model is the module that prepare() is given, so its optimiser sees the same parameters."""

import torch
from accelerate import Accelerator

import torchbolt


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    rows = torch.randn(64, 8)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, data = accelerator.prepare(torchbolt.compile(model), optimizer, data)
    losses = []
    for _ in range(5):
        for x, y in data:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    stats = torchbolt.stats()
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
