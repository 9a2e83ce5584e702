# tests/ops/test_gradcheck.py
"""Every differentiable operator of PyTorch's test database, compiled, by gradcheck and gradgradcheck in float64.

`make nightly` runs it, and BOLT_GRADCHECK=1 asks for it elsewhere: it takes some minutes. BOLT_OP_SAMPLES: how many samples
of each."""

import itertools
import os
import warnings

import op_cases
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._pytree import tree_flatten, tree_unflatten

import torchbolt

pytest.importorskip("expecttest", reason="torch.testing's operator database needs expecttest")

pytestmark = pytest.mark.skipif("BOLT_GRADCHECK" not in os.environ, reason="asked for by BOLT_GRADCHECK=1")

SAMPLES = int(os.environ.get("BOLT_OP_SAMPLES", "1"))
# What it writes is counted as a write of what its recorded run has saved, and forward runs come before that one's backward pass.
# Gradients of gradients of the other are refused: its result shows what it makes within in another form.
LEFT_OUT = ("_batch_norm_with_update", "linalg.tensorinv")
MOST = 512  # elements that are differentiated for: fast_mode looks at all of them at once
OPERATORS = [
    pytest.param(op, id=op_cases.name_of(op))
    for op in (op_cases.database() if "BOLT_GRADCHECK" in os.environ else ())
    if op.supports_autograd
    and op.supports_dtype(torch.float64, "cpu")
    and op.name not in (*op_cases.NO_VALUES, *LEFT_OUT)
]


def function_of(op, sample):
    """(a function of the tensors that gradients are wanted for, those tensors)"""
    leaves, form = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.requires_grad]

    def call(*wanted):
        torch.manual_seed(0)
        given = list(leaves)
        for place, t in zip(places, wanted, strict=True):
            given[place] = t
        first, rest, named = tree_unflatten(given, form)
        result = op.gradcheck_wrapper(op.get_op(), first, *rest, **named)
        result = sample.output_process_fn_grad(result) if sample.output_process_fn_grad else result
        return tuple(t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad)

    return call, [leaves[i].detach().clone().requires_grad_() for i in places]


def usable(op):
    """The first samples that are small, and that eager's gradients pass with."""
    samples = op.sample_inputs("cpu", torch.float64, requires_grad=True)
    for sample in itertools.islice(samples, SAMPLES + 3):
        call, wanted = function_of(op, sample)
        if wanted and sum(t.numel() for t in wanted) <= MOST and all(t.layout == torch.strided for t in wanted):
            yield call, wanted


def passes(check, call, wanted, op):
    try:
        return check(call, wanted, nondet_tol=op.gradcheck_nondet_tol, fast_mode=True, raise_exception=False,
                     check_undefined_grad=False)  # fmt: skip
    except Exception:
        return False


@pytest.mark.parametrize("op", OPERATORS)
def test_gradients_and_their_gradients(op):
    checks = [gradcheck, *([gradgradcheck] if op.supports_gradgrad else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, wanted in itertools.islice(usable(op), SAMPLES):
            torchbolt.reset()
            compiled = torchbolt.compile(call)
            for check in checks:
                if passes(check, call, wanted, op):
                    assert check(compiled, wanted, nondet_tol=max(op.gradcheck_nondet_tol, 1e-12), fast_mode=True,
                                 check_undefined_grad=False)  # fmt: skip
