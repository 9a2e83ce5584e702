# tests/training/conftest.py
"""Each test begins with the same random numbers and with nothing compiled."""

import pytest
import torch

import torchbolt


@pytest.fixture(autouse=True)
def start():
    torch.manual_seed(0)
    torchbolt.reset()
