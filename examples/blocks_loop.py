# examples/blocks_loop.py
"""A training loop as torchtune and torchtitan have it: each transformer block is compiled by itself, in place."""

import torch

import torchbolt


class Block(torch.nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(torch.nn.functional.silu(self.up(self.norm_2(x))))


class Model(torch.nn.Module):
    def __init__(self, words=64, width=32, depth=3):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.layers = torch.nn.ModuleDict({str(i): Block(width) for i in range(depth)})
        self.head = torch.nn.Linear(width, words)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers.values():
            x = layer(x)
        return self.head(x)


def main():
    torchbolt.install()
    torch.manual_seed(0)
    model = Model()
    for layer in model.layers.values():
        layer.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids = torch.randint(0, 64, (4, 17))
    losses = []
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    stats = torchbolt.stats()
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
