# tests/fuzz/test_random_gradients.py
"""Random functions that gradients are needed of (gradients.py), each called nine times: whatever autograd is asked for,
hooks, errors and gradients are eager's, near float64's, and nothing is recorded anew for calls that are like earlier ones.

    BOLT_FUZZ_CASES=500 BOLT_FUZZ_SEED=1000 pytest tests/fuzz/test_random_gradients.py

runs the seeds 1000 ... 1499. A failing program is printed with as few statements and events as still fail.
"""

import gradients
import programs
import pytest
import torch
from test_random_programs import CASES, FIRST, sharing

import torchbolt
from bench import compare

PER_TEST = 10
CALLS = (0, 0, 0, 1, 2, 1, 0, 1, 0)
NEEDLESS = (
    "raised: modified by an inplace operation",
    "raised: second time",
    "raised: is a view",
    "raised: detach views",
    "raised: detached in-place",
    "raised: apart",
)
KNOWN = 7  # from this call on all is known, also where masks turn out to end regions


def outcome(fn, seed, which, events, dtype=None):
    """(what is seen, gradients of the leaves), or the error of the call itself."""
    tensors, kinds = gradients.inputs_of(seed, which)
    torch.manual_seed(which)
    with programs.default_dtype(dtype or torch.float32):
        return gradients.Use(fn, programs.copies(tensors, dtype), kinds, events)


def flat(value):
    """Everything but tensors, and the tensors."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), [value.detach()]
    if isinstance(value, dict):
        parts = [(k, flat(v)) for k, v in sorted(value.items())]
        return {k: shape for k, (shape, _) in parts}, [t for _, (_, ts) in parts for t in ts]
    if isinstance(value, (list, tuple)):
        parts = list(map(flat, value))
        return [shape for shape, _ in parts], [t for _, ts in parts for t in ts]
    return value, []


def errors_in(seen):
    """Which events raise, and the first in what words: what later ones find depends on how far a pass had come."""
    raised = {name: value for name, value in seen.items() if "raised" in str(value)}
    first = str(next(iter(raised.values()), ""))
    # Of what was written eager says so in the words of whatever node comes first.
    return list(raised), first.replace("raised: is a view", "raised: modified by an inplace operation")


def place_of(gradient):
    if gradient is None:
        return None
    strides = [stride for stride, size in zip(gradient.stride(), gradient.shape, strict=True) if size != 1]
    return strides, gradient.requires_grad, gradient.is_leaf


def needless_error(got, want):
    """Did eager alone refuse? It saves tensors for their sizes and numbers as tensors, and marks views that nobody needs.

    It looks at views first, and we may come to a graph that is gone, as it would have.
    """
    gone = "raised: second time"
    for name, values in want.seen.items():
        for ours, eagers in zip(got.seen.get(name, []), values, strict=False):
            if isinstance(eagers, str) and ours != eagers:
                return eagers in NEEDLESS and (ours == gone or not isinstance(ours, str))
    return False


def raises_otherwise(compiled, seed, which, events, error):
    try:
        outcome(compiled, seed, which, events)
    except type(error):
        return False
    return True


def fault_of(seed, statements, result, events):
    """What is wrong with the compiled function, or None."""
    eager, _ = gradients.function_of(statements, result)
    theirs, _ = gradients.function_of(statements, result)
    torchbolt.reset()
    compiled = torchbolt.compile(theirs, recompile_limit=64)
    # Within a transform it is another function; passes inside have a program for each of the first sizes.
    later = {"within a transform", "forward mode"} & {name for name, *_ in events[1]}
    passes = any(word in s for s in statements for word in (".backward(", "autograd.grad("))
    known = len(CALLS) if later or passes else KNOWN
    for place, which in enumerate(CALLS):
        where = f"call {place}, inputs {which}"
        recorded = torchbolt.stats()["recordings"]
        try:
            want = outcome(eager, seed, which, events)
            drawn = torch.get_rng_state()
            exact = outcome(eager, seed, which, events, torch.float64)
        except (RuntimeError, IndexError, ValueError) as error:  # these sizes do not fit together
            if raises_otherwise(compiled, seed, which, events, error):
                return f"{where}: {error!r} is not raised"
            continue
        try:
            got = outcome(compiled, seed, which, events)
        except Exception as error:
            return f"{where}: {type(error).__name__}: {error}"
        if place >= known and torchbolt.stats()["recordings"] != recorded:
            return f"{where}: it was recorded anew"
        if not torch.equal(drawn, torch.get_rng_state()):
            return f"{where}: other random numbers were drawn"
        shapes, tensors = zip(*(flat([use.seen, use.gradients]) for use in (got, want, exact)), strict=True)
        if shapes[1] != shapes[2] or needless_error(got, want):
            continue  # rounding decides what these inputs lead to
        raised = [errors_in(seen) for seen, _ in shapes[:2]]
        if raised[0] != raised[1] or (shapes[0] != shapes[1] and not raised[1][0]):
            return f"{where}: {shapes[0]}\n  not {shapes[1]}"
        if raised[1][0]:
            continue  # how far a pass has come that raises is nobody's affair
        rounded = gradients.rounding(gradients.inputs_of(seed, which)[0], statements)
        if not programs.well_conditioned(tensors[1], tensors[2], rounded):
            continue
        layouts = [list(map(place_of, use.gradients)) for use in (got, want)]
        if layouts[0] != layouts[1]:
            return f"{where}: gradients lie as {layouts[0]}, not {layouts[1]}"
        forms = [[compare.form(t) for t in use.all] for use in (got, want)]
        if forms[0] != forms[1]:
            return f"{where}: results {forms[0]}, not {forms[1]}"
        memory = [sharing([*use.all, *[g for g in use.gradients if g is not None]]) for use in (got, want)]
        if memory[0] != memory[1]:
            return f"{where}: memory is shared as {memory[0]}, not {memory[1]}"
        ours, eagers = compare.max_error(tensors[0], tensors[2]), compare.max_error(tensors[1], tensors[2])
        if ours > 2 * eagers + 4 * compare.rounding_floor(tensors[2], rounded):
            return f"{where}: error {ours}, eager's {eagers}"
    return None


def shrink(seed, statements, result, events):
    """Drops statements and events while what is left runs and fails."""

    def fails(statements, events):
        fn, _ = gradients.function_of(statements, result)
        try:
            outcome(fn, seed, 0, events)
        except Exception:
            return False
        return fault_of(seed, statements, result, events)

    for i in reversed(range(len(statements))):
        fewer = statements[:i] + statements[i + 1 :]
        if fails(fewer, events):
            statements = fewer
    before, after = events
    for i in reversed(range(len(before))):
        if fails(statements, (before[:i] + before[i + 1 :], after)):
            before = before[:i] + before[i + 1 :]
    for i in reversed(range(len(after))):
        if fails(statements, (before, after[:i] + after[i + 1 :])):
            after = after[:i] + after[i + 1 :]
    return statements, (before, after)


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, PER_TEST))
def test_equals_eager(first):
    for seed in range(first, min(first + PER_TEST, FIRST + CASES)):
        program = gradients.Program(seed, 1 + seed % 9)
        if not program.statements or not program.runs(program.statements, program.result):
            continue
        if fault_of(seed, program.statements, program.result, program.events):
            statements, events = shrink(seed, program.statements, program.result, program.events)
            _, source = gradients.function_of(statements, program.result)
            kinds = gradients.inputs_of(seed, 0)[1]
            fault = fault_of(seed, statements, program.result, events)
            pytest.fail(f"BOLT_FUZZ_SEED={seed}\n{source}\n{kinds}\n{events}\n{fault}")
