# tests/tape/test_lists.py
"""Operators over lists of tensors: compiled they are the operators of single tensors, and give what eager gives."""

from __future__ import annotations

import re

import pytest
import torch

import torchbolt
from torchbolt import _C


def lists(dtype=torch.float32, sizes=((3, 4), (5,), ())):
    draw = torch.Generator().manual_seed(0)
    return [[torch.rand(s, generator=draw).add(0.5).to(dtype) for s in sizes] for _ in range(3)]


OPERATORS = {
    "add": lambda a, b, c: torch._foreach_add(a, b, alpha=2),
    "add_number": lambda a, b, c: torch._foreach_add(a, 2.5),
    "add_numbers": lambda a, b, c: torch._foreach_add(a, [1, 2.5, 3]),
    "add_tensor": lambda a, b, c: torch._foreach_add(a, c[2], alpha=3),
    "add_": lambda a, b, c: torch._foreach_add_(a, b, alpha=0.5),
    "sub": lambda a, b, c: torch._foreach_sub(a, b, alpha=2),
    "sub_numbers_": lambda a, b, c: torch._foreach_sub_(a, [1.0, 2.0, 3.0]),
    "mul_number_": lambda a, b, c: torch._foreach_mul_(a, 3),
    "mul_tensor_": lambda a, b, c: torch._foreach_mul_(a, c[2]),
    "div": lambda a, b, c: torch._foreach_div(a, b),
    "div_tensor_": lambda a, b, c: torch._foreach_div_(a, c[2]),
    "addcmul": lambda a, b, c: torch._foreach_addcmul(a, b, c, value=0.5),
    "addcmul_numbers_": lambda a, b, c: torch._foreach_addcmul_(a, b, c, [0.5, 1.0, 2.0]),
    "addcdiv_": lambda a, b, c: torch._foreach_addcdiv_(a, b, c, value=-0.5),
    "addcdiv_tensor": lambda a, b, c: torch._foreach_addcdiv(a, b, c, torch.tensor([0.5, 1.0, 2.0])),
    "lerp": lambda a, b, c: torch._foreach_lerp(a, b, c),
    "lerp_number_": lambda a, b, c: torch._foreach_lerp_(a, b, 0.25),
    "pow": lambda a, b, c: torch._foreach_pow(a, b),
    "pow_number": lambda a, b, c: torch._foreach_pow(a, 2),
    "pow_numbers_": lambda a, b, c: torch._foreach_pow_(a, [1.0, 2.0, 0.5]),
    "pow_of_number": lambda a, b, c: torch._foreach_pow(2.0, a),
    "maximum": lambda a, b, c: torch._foreach_maximum(a, b),
    "maximum_number_": lambda a, b, c: torch._foreach_maximum_(a, 1.0),
    "minimum_numbers": lambda a, b, c: torch._foreach_minimum(a, [0.5, 1.0, 2.0]),
    "clamp_min": lambda a, b, c: torch._foreach_clamp_min(a, b),
    "clamp_max_number_": lambda a, b, c: torch._foreach_clamp_max_(a, 1.0),
    "norm": lambda a, b, c: torch._foreach_norm(a),
    "norm_of_order": lambda a, b, c: torch._foreach_norm(a, float("inf")),
    "sqrt": lambda a, b, c: torch._foreach_sqrt(a),
    "sqrt_": lambda a, b, c: torch._foreach_sqrt_(a),
    "neg_": lambda a, b, c: torch._foreach_neg_(a),
    "reciprocal_": lambda a, b, c: torch._foreach_reciprocal_(a),
    "sign": lambda a, b, c: torch._foreach_sign(a),
    "zero_": lambda a, b, c: torch._foreach_zero_(a),
    "copy_": lambda a, b, c: torch._foreach_copy_(a, b),
    "max": lambda a, b, c: torch._foreach_max(a),
}


def changed(operator):
    """What it gives, and what it leaves of its first list."""

    def fn(a, b, c):
        given = operator(a, b, c)
        return list(given), list(a)

    return fn


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", OPERATORS)
def test_equal_to_eager(name, dtype):
    torchbolt.reset()
    fn = changed(OPERATORS[name])
    want, got = fn(*lists(dtype)), torchbolt.compile(fn)(*lists(dtype))
    for of_eager, ours in zip(want, got, strict=True):
        assert [t.dtype for t in ours] == [t.dtype for t in of_eager]
        torch.testing.assert_close(ours, of_eager)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_promotion_is_that_of_single_tensors():
    def fn(a, b):
        return torch._foreach_add(a, b), torch._foreach_mul(a, 2.5), torch._foreach_div(a, 2), torch._foreach_sqrt(a)

    given = [torch.arange(1, 5), torch.ones(3, dtype=torch.int32)], [torch.rand(4), torch.rand(3).double()]
    torchbolt.reset()
    torch.testing.assert_close(torchbolt.compile(fn)(*given), fn(*given))


def graph_of(fn, *args, **options) -> str:
    with torch.no_grad():
        tape = _C._record_tape(fn, args, [])
    return _C._opt(tape, [*(f"--{k}={v}" for k, v in options.items()), "-"])[0]


def flat(operator):
    def fn(*tensors):
        third = len(tensors) // 3
        a = list(tensors[:third])
        given = operator(a, list(tensors[third : 2 * third]), list(tensors[2 * third :]))
        return tuple(given)

    return fn


@pytest.mark.parametrize("name", OPERATORS)
def test_none_is_a_call(name):
    tensors = [t for each in lists() for t in each]
    graph = graph_of(flat(OPERATORS[name]), *tensors, emit="graph")
    assert "_foreach_" not in graph, graph


@pytest.mark.parametrize("name", [name for name in ("_foreach_powsum",) if hasattr(torch, name)])
def test_operators_without_a_row_stay_one_call(name):
    tensors = [t for each in lists() for t in each]
    graph = graph_of(flat(lambda a, b, c: getattr(torch, name)(a, 2)), *tensors, emit="graph")
    assert graph.count("extern_call(") == 1 and name in graph, graph


def adamw(parameters, gradients, first, second, step):
    torch._foreach_mul_(parameters, 1 - 1e-3 * 1e-2)
    torch._foreach_lerp_(first, gradients, 0.1)
    torch._foreach_mul_(second, 0.999)
    torch._foreach_addcmul_(second, gradients, gradients, 0.001)
    root = torch._foreach_sqrt(second)
    torch._foreach_div_(root, [(1 - 0.999**step) ** 0.5] * len(root))
    torch._foreach_add_(root, 1e-8)
    torch._foreach_addcdiv_(parameters, first, root, [-1e-3 / (1 - 0.9**step)] * len(root))
    return parameters


def test_an_optimizer_goes_through_each_tensor_once():
    sizes = [(16, 24), (24,), (24, 4), (4,)]
    tensors = [torch.rand(s) for _ in range(4) for s in sizes]

    def fn(*all_tensors):
        return tuple(adamw(*(list(all_tensors[i : i + 4]) for i in range(0, 16, 4)), step=3))

    plan = graph_of(fn, *tensors, emit="plan", passes="standard")
    steps = re.findall(r"^  \d+: (.*)$", plan, re.M)
    assert len(steps) == 4 and all("kernel @" in s for s in steps), plan


def plan_on_cuda(fn, *args, sizes="[^\\]]*") -> list[str]:
    """The steps of the plan, if the tensors of these sizes had been on a CUDA device."""
    with torch.no_grad():
        tape = _C._record_tape(fn, args, [])
    tape = re.sub(rf"((?:input |: )\w+\[{sizes}\](?:\{{[^}}]*\}})?)", r"\1 cuda:0", tape)
    plan = _C._opt(tape, ["--emit=plan", "--passes=standard", "--target=cuda", "-"])[0]
    assert _C._opt(plan, ["-"])[0] == plan
    return re.findall(r"^  \d+: (.*)$", plan, re.M)


def lists_of(steps: list[str]) -> list[str]:
    return [number for step in steps for number in re.findall(r" in list (\d+)", step)]


def test_parameters_of_many_sizes_are_few_launches():
    sizes = [(16, 24), (24,), (24, 4), (4,), (7, 3), (5,), (6,), (2, 5), (300_000,)]
    tensors = [torch.rand(s) for _ in range(4) for s in sizes]

    def fn(*given):
        n = len(sizes)
        return tuple(adamw(*(list(given[i : i + n]) for i in range(0, 4 * n, n)), step=3))

    steps = plan_on_cuda(fn, *tensors)
    numbers = lists_of(steps)
    assert len(numbers) == len(steps) == len(sizes), steps
    # By how many elements an access takes: four, two, one.
    assert len(set(numbers)) == 3 and numbers == sorted(numbers), steps


def test_norms_of_many_sizes_are_few_launches():
    sizes = [(16, 24), (24,), (24, 4), (8, 3), (300_000,), (1 << 20,)]

    def fn(*gradients):
        norms = torch._foreach_norm(gradients)
        total = torch.linalg.vector_norm(torch.stack(norms))
        scale = torch.clamp(0.1 / (total + 1e-6), max=1.0)
        changed = list(gradients)
        torch._foreach_mul_(changed, scale)
        return (total, *changed)

    steps = plan_on_cuda(fn, *(torch.rand(s) for s in sizes))
    assert len(set(lists_of(steps))) == 3, steps  # short norms, long ones, and what is scaled
    assert len(steps) == len(lists_of(steps)) + 1, steps


def test_numbers_of_the_processor_are_handed_over():
    """Of each step of each parameter one is computed there, as torch.optim does."""
    sizes = [(16, 24), (24,), (24, 4), (4,)]

    def fn(*given):
        parameters, steps = list(given[:4]), list(given[4:])
        torch._foreach_add_(steps, 1)
        rates = [(1 - 0.9**step).reciprocal() for step in steps]
        torch._foreach_mul_(parameters, rates)
        torch._foreach_addcdiv_(parameters, parameters, parameters, torch.stack(rates))
        return (*parameters, *steps)

    given = *(torch.rand(s) for s in sizes), *(torch.tensor(3.0) for _ in sizes)
    steps = plan_on_cuda(fn, *given, sizes="[^\\]]+")
    here = [step for step in steps if not step.startswith("cuda:0")]
    assert all("kernel @" in step for step in steps) and steps[: len(here)] == here, steps
    assert lists_of(steps) == ["0"] * len(sizes), steps


@pytest.mark.parametrize("count", [65, 300])
def test_many_parts_are_joined_in_several_steps(count):
    """A launch takes so many arguments and no more."""

    def fn(*given):
        return torch.stack(given), torch.cat([t.reshape(1) for t in given])

    given = [torch.rand(()) for _ in range(count)]
    torchbolt.reset()
    torch.testing.assert_close(torchbolt.compile(fn)(*given), fn(*given))
    steps = plan_on_cuda(lambda *norms: torch.stack(torch._foreach_norm(norms)), *given)
    assert all(step.count("b") < 80 for step in steps), steps
