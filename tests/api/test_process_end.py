# tests/api/test_process_end.py
"""Processes that end while other threads compute or compile: none may end by a signal because one of these asks for
Python's lock, which Python does not give any more."""

import os
import subprocess
import sys

import pytest

# Python takes its modules apart for a while, in which threads that had let go of its lock come back for it.
SCRIPT = """
import threading, time
import torch
import torchbolt

torch.set_num_threads(1)


class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1)


slow = Slow()
begun = threading.Event()
{body}
threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep({wait})
"""

A_REGION = """
def products(x, w):
    for _ in range(4):
        x = (x @ w).sin()
    return x

f = torchbolt.compile(products)
x, w = torch.randn(900, 900), torch.randn(900, 900)
for _ in range(3):
    f(x, w)

def work():
    begun.set()
    f(x, w)
    time.sleep(100)
"""

# What torch runs in the thread while it records would end the process in eager as well: by then it is compiling.
A_COMPILATION = """
def long(x):
    for i in range(200):
        x = (x * (i + 1)).sin() + x.cos().cumsum(0)
    return x

f = torchbolt.compile(long)
x = torch.randn(8, 8)

def work():
    begun.set()
    f(x)
    time.sleep(100)
"""

IN_THE_BACKGROUND = """
for n in range(3, 9):
    f = torchbolt.compile(lambda x: (x * n).sin() + n, options={"background": True})
    f(torch.ones(64))

def work():
    begun.set()
    time.sleep(100)
"""


@pytest.mark.parametrize(
    "body, wait",
    [(A_REGION, 0), (A_REGION, 0.02), (A_COMPILATION, 1), (IN_THE_BACKGROUND, 0), (IN_THE_BACKGROUND, 0.05)],
    ids=["a region", "a region, later", "a compilation", "in the background", "in the background, later"],
)
def test_threads_come_back_when_python_ends(body, wait, tmp_path):
    environment = dict(os.environ, TORCHBOLT_CACHE_DIR=str(tmp_path))
    command = [sys.executable, "-c", SCRIPT.format(body=body, wait=wait)]
    for _ in range(4):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
