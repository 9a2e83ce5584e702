# tests/fuzz/test_random_programs.py
"""Random functions (programs.py), each called with four sets of inputs and numbers: results, mutated inputs, layouts
and shared memory equal eager's, and errors against float64 are at most twice eager's. In every fourth program autograd
follows the inputs, and gradients are compared, too; every fifth is called in autocast.

    BOLT_FUZZ_CASES=500 BOLT_FUZZ_SEED=1000 pytest tests/fuzz

runs the seeds 1000 ... 1499. A failing program is printed with as few statements as still fail.
"""

import os
import random

import programs
import pytest
import torch

import torchbolt
from bench import compare

FIRST = int(os.environ.get("BOLT_FUZZ_SEED", 1))
CASES = int(os.environ.get("BOLT_FUZZ_CASES", 1 if "BOLT_FUZZ_SEED" in os.environ else 300))
PER_TEST = 10  # programs; names of tests should not depend on much


class Raised(list):
    """What the caller sees where the function raised: the inputs afterwards."""

    def __init__(self, error, tensors):
        super().__init__(tensors)
        self.error = type(error)


def outcome(fn, tensors, numbers, which=0, differentiates=False, casts=False):
    """What the caller sees: the result, the inputs afterwards and their gradients, or a Raised."""
    random.seed(which)
    torch.manual_seed(which)
    leaves = [t.requires_grad_() for t in tensors if t.is_floating_point() or t.is_complex()] if differentiates else []
    if differentiates:
        tensors = [t * 1 for t in tensors]  # what autograd follows may be written, its leaves may not
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=casts):
            result = [fn(*tensors, *numbers), list(tensors)]
        losses = [t.abs().sum() if t.is_complex() else t.sum() for t in programs.tensors_in(result) if t.requires_grad]
        if losses:
            sum(losses).backward()
        return [*result, [t.grad for t in leaves]]
    except Exception as error:
        if isinstance(error, torchbolt.exc.TorchboltError):
            raise
        return Raised(error, tensors)


def detached(value):
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return type(value)((k, detached(v)) for k, v in value.items())
    if isinstance(value, Raised):
        return list(map(detached, value))
    return type(value)(map(detached, value)) if isinstance(value, (list, tuple)) else value


def sharing(value):
    """Which tensors lie in one storage, as a number for each; what has no elements lies nowhere."""
    seen = {}
    where = lambda t: seen.setdefault(t.untyped_storage().data_ptr(), len(seen))
    return [where(t) for t in programs.tensors_in(value) if t.numel()]


def fault_of(seed, statements, result):
    """What is wrong with the compiled program, or None."""
    eager, _ = programs.function_of(statements, result)
    theirs, _ = programs.function_of(statements, result)
    compiled = torchbolt.compile(theirs)
    how = seed % 4 == 3, seed % 5 == 4 and not programs.has_empty_inputs(seed)
    for which in (0, 1, 2, 3, 1):
        inputs, numbers = programs.inputs_of((seed, which)), programs.numbers_of((seed, which))
        expected = outcome(eager, programs.copies(inputs), numbers, which, *how)
        drawn = torch.get_rng_state()
        with programs.default_dtype(torch.float64):  # of what is made of integers
            exact = outcome(eager, programs.copies(inputs, torch.float64), numbers, which, *how)
        try:
            got = outcome(compiled, programs.copies(inputs), numbers, which, *how)
        except Exception as error:
            return f"call {which}: {type(error).__name__}: {error}"
        if not torch.equal(drawn, torch.get_rng_state()):
            return f"call {which}: other random numbers were drawn"
        errors = [getattr(each, "error", None) for each in (got, expected, exact)]
        if errors[0] is not errors[1]:
            return f"call {which}: {errors[0] or got}, not {errors[1] or expected}"
        # Rounding decides what is raised.
        if errors[1] is not errors[2]:
            continue
        forms = compare.form(got), compare.form(expected)
        got, expected, exact = map(detached, (got, expected, exact))
        # Rounding decides what these inputs lead to.
        rounded = torch.bfloat16 if how[1] else programs.rounding(inputs, statements)
        if not programs.well_conditioned(expected, exact, rounded):
            continue
        if forms[0] != forms[1]:
            return f"call {which}: {forms[0]}\n  not {forms[1]}"
        if compare.exact_parts(got) != compare.exact_parts(expected):
            if rounded != torch.float32:  # eager rounds between operators, a kernel at its end
                continue
            return f"call {which}: integers differ"
        if sharing(got) != sharing(expected):
            return f"call {which}: memory is shared as {sharing(got)}, not {sharing(expected)}"
        ours, eagers = compare.max_error(got, exact), compare.max_error(expected, exact)
        floor = 4 * compare.rounding_floor(exact, rounded)
        if ours > 2 * eagers + floor:
            return f"call {which}: error {ours}, eager's {eagers}"
    return None


def shrink(seed, statements, result):
    """Drops statements while what is left runs and fails."""
    i = len(statements)
    while i > 0:
        i -= 1
        fewer = statements[:i] + statements[i + 1 :]
        fn, _ = programs.function_of(fewer, result)
        inputs = programs.copies(programs.inputs_of((seed, 0)))
        if isinstance(outcome(fn, inputs, programs.numbers_of((seed, 0))), Raised):
            continue
        if fault_of(seed, fewer, result):
            statements = fewer
    return statements


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, PER_TEST))
def test_equals_eager(first):
    for seed in range(first, min(first + PER_TEST, FIRST + CASES)):
        program = programs.Program(seed, 1 + seed % 9)
        if fault_of(seed, program.statements, program.result):
            statements = shrink(seed, program.statements, program.result)
            _, source = programs.function_of(statements, program.result)
            pytest.fail(f"BOLT_FUZZ_SEED={seed}\n{source}\n{fault_of(seed, statements, program.result)}")
