# tests/ops/test_operator_samples.py
"""Every operator of PyTorch's own test database, with the arguments its tests give it, against eager.

BOLT_OP_SAMPLES: how many samples of each operator and element type; the nightly run takes all."""

import os

import op_cases
import pytest
import torch

pytest.importorskip("expecttest", reason="torch.testing's operator database needs expecttest")

SAMPLES = int(os.environ.get("BOLT_OP_SAMPLES", "2"))
OPERATORS = [pytest.param(op, id=op_cases.name_of(op)) for op in op_cases.database()]


def differences(op, dtypes, samples, gradients=False):
    return [
        line
        for dtype in dtypes
        if op_cases.takes(op, dtype, gradients)
        for line in op_cases.run(op, dtype, samples, gradients)
        if line["found"]
    ]


@pytest.mark.parametrize("op", OPERATORS)
def test_results(op):
    assert not differences(op, [torch.float32], SAMPLES)
    others = [getattr(torch, name) for name in op_cases.DTYPES if name != "float32"]
    assert not differences(op, others, max(1, SAMPLES // 2))


@pytest.mark.parametrize("op", OPERATORS)
def test_gradients(op):
    assert not differences(op, [torch.float32], max(1, SAMPLES // 2), gradients=True)
