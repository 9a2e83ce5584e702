# examples/ddp_loop.py
"""Data-parallel training: two processes, DistributedDataParallel, a compiled model and a compiled optimizer's step.

`python ddp_loop.py` starts both processes on the processor; `torchrun --nproc-per-node=2 ddp_loop.py` has torchrun
start them, on GPUs where there are enough.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torchbolt


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(16, 64),
        torch.nn.GELU(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 4),
    )


def train(device, steps=8):
    rank = dist.get_rank()
    torch.manual_seed(0)
    # What DistributedDataParallel sends are gradients of this very module: compiled or not, it is the same.
    compiled = torchbolt.compile(model().to(device))
    parallel = DistributedDataParallel(compiled, bucket_cap_mb=0.01)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(rank)  # every rank has data of its own
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 16, generator=data).to(device)
        loss = torch.nn.functional.cross_entropy(parallel(x), x[:, :4].argmax(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    total = torch.tensor([p.detach().double().sum() for p in parallel.parameters()]).sum().to(device)
    others = [torch.empty_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(others, total)
    assert all(torch.equal(total, each) for each in others)
    stats = torchbolt.stats()
    if rank == 0:
        print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, regions {stats['regions']}, recordings {stats['recordings']}")


def started_here(rank, ranks, folder):
    store = dist.FileStore(os.path.join(folder, "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    train(torch.device("cpu"))
    dist.destroy_process_group()


def started_by_torchrun():
    on_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpus else "gloo")
    train(device)
    dist.destroy_process_group()


def main(ranks=2):
    if "RANK" in os.environ:
        started_by_torchrun()
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(started_here, (ranks, folder), ranks)


if __name__ == "__main__":
    main()
