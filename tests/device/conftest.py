# tests/device/conftest.py
"""What test_cuda*.py asks of a device is left out where there is none; each test begins anew."""

from __future__ import annotations

import pytest
import torch

import torchbolt


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.path.name.startswith("test_cuda") and item.path.parent.name == "device":
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def anew():
    torch.manual_seed(0)
    torchbolt.reset()
