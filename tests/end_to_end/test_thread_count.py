# tests/end_to_end/test_thread_count.py
"""Kernels share their work among torch's threads."""

import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt

WORK = {
    "contraction": (nn.Linear(512, 512), (512, 512)),
    "pointwise": (lambda x: F.gelu(x) * torch.sigmoid(x), (1024, 1024)),
}


@pytest.mark.parametrize("name", WORK)
def test_two_threads_work(name):
    fn, shape = WORK[name]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.no_grad():
            compiled, x = torchbolt.compile(fn), torch.randn(shape)
            for _ in range(3):
                compiled(x)
            mine, all_threads = time.thread_time(), time.process_time()
            for _ in range(50):
                compiled(x)
            mine, all_threads = time.thread_time() - mine, time.process_time() - all_threads
        assert all_threads > 1.3 * mine
    finally:
        torch.set_num_threads(before)
