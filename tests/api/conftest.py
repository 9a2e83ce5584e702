# tests/api/conftest.py
"""What the files here share."""

import pytest
import torch

import torchbolt


@pytest.fixture
def fresh():
    """Nothing is compiled, and nothing is differentiated."""
    torchbolt.reset()
    with torch.no_grad():
        yield
