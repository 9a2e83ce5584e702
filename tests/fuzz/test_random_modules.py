# tests/fuzz/test_random_modules.py
"""Random modules with state (modules.py), called ten times with changes between the calls: results, arguments, attributes,
buffers, containers, globals, gradients and which of them are the same object equal those of a twin that eager runs.

    BOLT_FUZZ_CASES=1500 BOLT_FUZZ_SEED=1000 pytest tests/fuzz/test_random_modules.py

runs the seeds 1000 ... 1499.
"""

import modules
import pytest
import torch
from test_random_programs import CASES, FIRST, sharing

import torchbolt
from bench import compare

PER_TEST = 10
MODULES = -(-CASES // 3)  # each is called ten times


def place_in_graph(t):
    try:
        return t.grad_fn is None, t.is_leaf
    except RuntimeError:  # a view that was written behind its back: eager's may be one where ours is not
        return None


def leaf_fault(got, want, exact):
    if not isinstance(want, torch.Tensor):
        if isinstance(want, float) and isinstance(got, float):
            return None if abs(got - want) <= 1e-4 * max(1, abs(want)) else f"{got}, not {want}"
        return None if type(got) is type(want) and got == want else f"{got!r}, not {want!r}"
    if not isinstance(got, torch.Tensor):
        return f"{got!r}, not a tensor"
    forms = [(compare.form(t), t.is_inference()) for t in (got, want)]
    if forms[0] != forms[1]:
        return f"{forms[0]}, not {forms[1]}"
    if place_in_graph(want) and place_in_graph(got) != place_in_graph(want):
        return f"{place_in_graph(got)}, not {place_in_graph(want)}: no grad_fn, a leaf"
    if not want.numel():
        return None
    got, want, exact = (t.detach().double() for t in (got, want, exact))
    ours, eagers = (float((t - exact).abs().max()) for t in (got, want))
    return None if ours <= 2 * eagers + 1e-5 * max(1.0, float(exact.abs().max())) else f"error {ours}, eager's {eagers}"


def compiled(module):
    return torchbolt.compile(module, recompile_limit=64)


def compiled_by_a_function(module):
    return torchbolt.compile(lambda *args, **kwargs: module(*args, **kwargs), recompile_limit=64)


def compiled_within(module):
    """The parts are compiled, the whole is run by eager."""
    module.inner = module.refs["a"] = compiled(module.inner)
    module.layers[0], module.layers[2] = compiled(module.layers[0]), compiled(module.layers[2])
    return module


def compiled_twice(module):
    return compiled_by_a_function(compiled(compiled_within(module)))


def compiled_on_the_class(module):
    cls = type(module)
    cls.forward, cls.helper = (torchbolt.compile(f, recompile_limit=64) for f in (cls.forward, cls.helper))
    return module


def compiled_for_all_sizes(module):
    return torchbolt.compile(module, dynamic=True, recompile_limit=64)


def compiled_for_one_size(module):
    return torchbolt.compile(module, dynamic=False, recompile_limit=64)


def compiled_as_a_graph(module):
    return torchbolt.compile(module, backend="aot_eager", recompile_limit=64)


def recorded(module):
    return torchbolt.compile(module, backend="eager", recompile_limit=64)


WAYS = (
    compiled, compiled, compiled_by_a_function, compiled_within, compiled_twice, compiled_on_the_class,
    compiled_for_all_sizes, compiled_for_one_size, compiled_as_a_graph, recorded,
)  # fmt: skip


UNTOLD = "rounding"


def fault_of(module, statements, result, calls):
    """What is wrong with the compiled twin; None: nothing; UNTOLD: nothing until rounding decided what came out."""
    source = modules.source_of(statements, result, module.seed)
    eager, exact = modules.World(source, module.seed), modules.World(source, module.seed, torch.float64)
    ours = modules.World(source, module.seed, wrap=WAYS[module.seed % len(WAYS)])
    try:
        return first_fault(eager, exact, ours, calls)
    finally:
        for world in (eager, exact, ours):
            world.close()


def first_fault(eager, exact, ours, calls):
    for which, (event, *call) in enumerate(calls):
        if len({world.event(event) for world in (eager, exact, ours)}) != 1:
            return f"call {which}: {event!r} raises in one of them"
        want, reference = eager.result(*call, which), exact.result(*call, which)
        where = f"call {which}, {event!r}, {call}"
        try:
            got = ours.result(*call, which)
        except Exception as error:
            return f"{where}: {type(error).__name__}: {error}"
        if not modules.alike(want, reference):
            return UNTOLD
        leaves = [list(modules.leaves(v)) for v in (got, want, reference)]
        for (path, g), (of, w), (_, r) in zip(*leaves, strict=False):
            fault = f"found instead of {of}" if path != of else leaf_fault(g, w, r)
            if fault:
                return f"{where}: {path}: {fault}"
        shared = [sharing([t for _, t in v if isinstance(t, torch.Tensor)]) for v in leaves[:2]]
        if shared[0] != shared[1]:
            return f"{where}: memory is shared as {shared[0]}, not {shared[1]}"
    return None


def shrink(module, statements, calls):
    """Fewer statements and changes that still fail."""
    runs = lambda s, c: fault_of(module, s, module.result, c) not in (None, UNTOLD)
    for i in reversed(range(1, len(calls))):
        fewer = calls[:i] + calls[i + 1 :]
        if runs(statements, fewer):
            calls = fewer
    for i in reversed(range(1, len(statements))):
        fewer = statements[:i] + statements[i + 1 :]
        if module.runs(fewer, module.result) and runs(fewer, calls):
            statements = fewer
    return statements, calls


@pytest.mark.parametrize("first", range(FIRST, FIRST + MODULES, PER_TEST))
def test_equals_eager(first):
    untold = 0
    for seed in range(first, min(first + PER_TEST, FIRST + MODULES)):
        module = modules.Module(seed, 1 + seed % 9)
        fault = fault_of(module, module.statements, module.result, module.calls)
        untold += fault is UNTOLD
        if fault not in (None, UNTOLD):
            statements, calls = shrink(module, module.statements, module.calls)
            lines = "\n    ".join(statements)
            pytest.fail(
                f"BOLT_FUZZ_SEED={seed}\n    {lines}\n    return {module.result}\n{calls}\n"
                f"{fault_of(module, statements, module.result, calls)}"
            )
    assert len(module.statements) > 1 and untold < PER_TEST, "these modules test nothing"
