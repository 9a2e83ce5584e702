# examples/lightning_module.py
"""Lightning: a module inside of the LightningModule is compiled; hooks, logging and the trainer stay as they are.

`self.training_step = torchbolt.compile(self.training_step)` does, too: the loss is part of it, and each `self.log` ends
a region, because Lightning keeps its results from compilers.
"""

import lightning
import torch

import torchbolt


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torchbolt.compile(
            torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
        )

    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main():
    lightning.seed_everything(0)
    rows = torch.randn(64, 8)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=16)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Regression(), data)
    stats = torchbolt.stats()
    assert stats["recordings"] > 0
    print(f"steps {trainer.global_step}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
