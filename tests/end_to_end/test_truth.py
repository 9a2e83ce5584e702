# tests/end_to_end/test_truth.py
"""all() and any() of every type: of uint8 they are uint8, and a tensor of one element has no dimension to reduce."""

import pytest
import torch

import torchbolt

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float32, torch.bfloat16, torch.complex64]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_truth(dtype, shape):
    def program(x):
        return x.all(), x.any(), x.all() * 2, x.any().logical_not()

    compiled = torchbolt.compile(program)
    for value in (1, 0):
        x = torch.full(shape, value, dtype=dtype)
        for got, expected in zip(compiled(x), program(x), strict=True):
            assert got.dtype == expected.dtype and torch.equal(got, expected)
