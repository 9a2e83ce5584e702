# tests/distributed/test_shared_cache.py
"""Ranks whose processes share one cache folder: what one has compiled, any of them may run."""

from __future__ import annotations

import torch
import torch.distributed as dist
from ranks import Ranks, device
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torchbolt


def trained(steps=3):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(device())
    parallel = DistributedDataParallel(torchbolt.compile(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        parallel(torch.randn(4, 8, generator=generator).to(device())).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    stats = torchbolt.stats()
    return [p.detach().cpu().tolist() for p in model.parameters()], stats["cache_hits"], stats["cache_misses"]


def test_one_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHBOLT_CACHE_DIR", str(tmp_path))
    runs = []
    for _ in range(2):
        ranks = Ranks(2)  # new processes
        try:
            runs.append(ranks(trained))
        finally:
            ranks.stop()
    (first, second), (third, fourth) = runs
    assert first[0] == second[0] == third[0] == fourth[0]
    for _, hits, misses in (third, fourth):
        assert hits > 0 and misses == 0
