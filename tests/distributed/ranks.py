# tests/distributed/ranks.py
"""Processes that form a group, and run functions of this folder side by side.

They live as long as the tests of one file, since starting one costs seconds. The devices are the GPUs where there is
one for each rank, and the processor elsewhere: no test says which.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
from datetime import timedelta
from multiprocessing.connection import Client, Listener

TIMEOUT = 60  # seconds that a rank waits for the others, and the test for a rank


class RanksFailed(AssertionError):
    pass


class Ranks:
    """`count` processes, each with its rank in one process group."""

    def __init__(self, count):
        self.count = count
        self.processes, self.connections = [], []

    def start(self):
        folder = tempfile.mkdtemp()
        self.listener = Listener(os.path.join(folder, "socket"), "AF_UNIX")
        here = pathlib.Path(__file__)
        paths = os.pathsep.join([str(here.parent), *[os.path.abspath(p or ".") for p in sys.path]])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONMALLOC": "default"}
        for rank in range(self.count):
            command = [sys.executable, str(here), str(rank), str(self.count), folder]
            self.processes.append(subprocess.Popen(command, env=environment))
        unsorted = [self.listener.accept() for _ in self.processes]
        self.connections = [connection for _, connection in sorted((c.recv(), c) for c in unsorted)]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        if self.processes:
            self.listener.close()
        self.processes, self.connections = [], []

    def __call__(self, function, *args, **kwargs):
        """What `function` gave on each rank. It is found again by its module and name."""
        if not self.processes:
            self.start()
        for connection in self.connections:
            connection.send((function.__module__, function.__qualname__, args, kwargs))
        given, failed = [], []
        for rank, connection in enumerate(self.connections):
            if not connection.poll(10 if failed else 2 * TIMEOUT):
                failed.append(f"rank {rank} gave no answer")
                continue
            try:
                raised, value = connection.recv()
            except EOFError:
                raised, value = True, "it ended"
            if raised:
                failed.append(f"rank {rank}:\n{value}")
            given.append(value)
        if failed:
            self.stop()  # ranks that wait for the one that failed are of no use to the next test
            raise RanksFailed("\n".join(failed))
        return given


def device():
    """Of the rank that asks."""
    import torch
    import torch.distributed as dist

    on_gpus = torch.cuda.device_count() >= dist.get_world_size()
    return torch.device("cuda", dist.get_rank()) if on_gpus else torch.device("cpu")


def main(rank, count, folder):
    import torch
    import torch.distributed as dist

    import torchbolt

    torch.set_num_threads(1)
    on_gpus = torch.cuda.device_count() >= count
    if on_gpus:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpus else "gloo",
        store=dist.FileStore(os.path.join(folder, "store"), count),
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=TIMEOUT),
    )
    connection = Client(os.path.join(folder, "socket"), "AF_UNIX")
    connection.send(rank)
    while True:
        try:
            module, name, args, kwargs = connection.recv()
        except EOFError:
            return
        try:
            torchbolt.reset()
            torch.manual_seed(0)
            function = getattr(importlib.import_module(module), name)
            answer = (False, function(*args, **kwargs))
        except BaseException:
            answer = (True, traceback.format_exc())
        connection.send(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
