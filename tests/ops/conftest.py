# tests/ops/conftest.py
"""Strict: a failure inside the compiler is an error, not a fall-back to eager. Each test has the same random numbers."""

import os
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
os.environ.setdefault("TORCHBOLT_STRICT", "1")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
