# tests/ops/op_cases.py
"""PyTorch's own operator samples (the database its test-suite uses) through torchbolt.

    python tests/ops/op_cases.py [op ...] [--samples N] [--shard I/N] [--dtypes float32 int64 bool ...] [--gradients]

Every operator, with the arguments that PyTorch's tests give it, is called by a compiled function and by eager: results, layouts,
exceptions and what became of the arguments must be equal. Four ways: called alone; between other operators that it may be
fused with; as its in-place variant; with gradients.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import json
import sys
import traceback
import warnings

import torch
from torch.utils._pytree import tree_flatten, tree_map

import torchbolt

DTYPES = ("float32", "int64", "bool", "complex64", "bfloat16", "float16")
#: Results whose values are whatever memory held, or that are no function of the arguments.
NO_VALUES = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")


def fresh(value):
    """A copy in memory of its own, of the same layout."""

    def one(t):
        if not isinstance(t, torch.Tensor):
            return copy.copy(t) if isinstance(t, list) else t
        if t.layout != torch.strided or t.is_nested or type(t) is not torch.Tensor:
            return t.detach().clone().requires_grad_(t.requires_grad)
        size = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0
        base = torch.zeros(size + t.storage_offset(), dtype=t.dtype)
        made = base.as_strided(t.shape, t.stride(), t.storage_offset())
        if t.numel():
            whole = t.detach().resolve_conj().resolve_neg().as_strided((size + t.storage_offset(),), (1,), 0)
            base.copy_(whole)
        return made.requires_grad_(t.requires_grad)

    return tree_map(one, value)


def outcome(call, arguments, seed=0):
    """What a call gave or raised, and the arguments after it."""
    torch.manual_seed(seed)
    try:
        return "gave", call(*arguments)
    except torchbolt.exc.TorchboltError:
        raise
    except Exception as error:
        return "raised", error


def tolerance(dtype):
    return {torch.bfloat16: (2e-2, 2e-2), torch.float16: (3e-3, 3e-3), torch.float32: (3e-5, 3e-5),
            torch.complex64: (3e-5, 3e-5)}.get(dtype, (1e-9, 1e-9))  # fmt: skip


def widened(x):
    if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.dtype in (torch.bfloat16, torch.float16):
        return x.detach().double().requires_grad_(x.requires_grad)
    return x


def rounding_decides(function, arguments, mine, theirs):
    """Is what half precision makes of it hardly further from the result in float64 than eager's? Of a softmax of large
    numbers a few roundings decide."""
    kind, exact = outcome(function, tree_map(widened, fresh(arguments)))
    if kind == "raised":
        return False
    for a, b, e in zip(*(tree_flatten(v)[0] for v in (mine, theirs, exact)), strict=True):
        if isinstance(a, torch.Tensor) and a.dtype in (torch.bfloat16, torch.float16) and a.numel():
            ours, eagers = (float((t.detach().double() - e.detach()).abs().max()) for t in (a, b))
            if not ours <= 4 * eagers:
                return False
    return True


def compare(mine, theirs, values=True, where="result"):
    """None, or in what they differ."""
    left, shape = tree_flatten(mine)
    right, other = tree_flatten(theirs)
    if shape != other or len(left) != len(right):
        return f"{where}: {shape} is not {other}"
    for i, (a, b) in enumerate(zip(left, right)):
        if type(a) is not type(b):
            return f"{where} {i}: {type(a)} is not {type(b)}"
        if not isinstance(a, torch.Tensor):
            if a is not b and not (a == b or a != a):
                return f"{where} {i}: {a!r} is not {b!r}"
            continue
        facts = [(t.dtype, t.layout, tuple(t.shape), t.requires_grad, t.is_conj(), t.is_neg()) for t in (a, b)]
        if facts[0] != facts[1]:
            return f"{where} {i}: {facts[0]} is not {facts[1]}"
        if a.layout != torch.strided or a.is_nested:
            continue
        strides = [tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else () for t in (a, b)]
        if strides[0] != strides[1]:
            return f"{where} {i}: strides {a.stride()} are not {b.stride()}"
        if not values:
            continue
        rtol, atol = tolerance(a.dtype)
        try:
            torch.testing.assert_close(a.detach(), b.detach(), rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return f"{where} {i}: " + " ".join(str(error).split())[:300]
    return None


def check(function, arguments, values=True, calls=2):
    """Compares `calls` calls of the compiled function with eager's; None, or the difference."""
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    for i in range(calls):
        theirs_args, my_args = fresh(arguments), fresh(arguments)
        theirs = outcome(function, theirs_args)
        mine = outcome(compiled, my_args)
        if mine[0] != theirs[0]:
            return f"call {i}: eager {theirs[0]} {theirs[1]!r}, compiled {mine[0]} {mine[1]!r}"[:400]
        if mine[0] == "raised":
            if type(mine[1]) is not type(theirs[1]):
                return f"call {i}: raised {mine[1]!r}, eager {theirs[1]!r}"[:400]
            continue
        found = compare(mine[1], theirs[1], values)
        if found and "not close" in found and rounding_decides(function, arguments, mine[1], theirs[1]):
            found = None
        found = found or compare(my_args, theirs_args, True, "argument")
        if found:
            return f"call {i}: {found}"
    return None


def scaled(x):
    """`x` after an operator that can be fused with what reads it."""
    if isinstance(x, torch.Tensor) and x.layout == torch.strided and (x.is_floating_point() or x.dtype == torch.int64):
        return x * 1
    return x


def between(function):
    """`function` with a pointwise operator on every tensor before and after it."""

    def call(*args):
        result = function(*tree_map(scaled, list(args)))
        return tree_map(scaled, result)

    return call


def with_gradients(function):
    """The gradients of `function` with respect to every argument that asks for one."""

    def call(*args):
        results = [r for r in tree_flatten(function(*args))[0] if isinstance(r, torch.Tensor) and r.requires_grad]
        wanted = [a for a in tree_flatten(args)[0] if isinstance(a, torch.Tensor) and a.requires_grad]
        loss = sum((r * r.conj()).real.sum() if r.is_complex() else (r * r).sum() for r in results)
        return results, torch.autograd.grad(loss, wanted, allow_unused=True) if results and wanted else ()

    return call


def ways(op, sample, gradients):
    """(way, function of the sample's flat arguments) ..."""

    def calling(target):
        def call(*args):
            return target(args[0], *args[1], **args[2])

        return call

    if gradients:
        yield "gradients", with_gradients(calling(op.op))
        return
    yield "alone", calling(op.op)
    yield "between", between(calling(op.op))
    if op.inplace_variant is not None and not sample.broadcasts_input:
        yield "in place", calling(op.inplace_variant)


#: What differs for a reason: (operator, element types).
KNOWN = {
    # The quotient is rounded to sixteen bits before its fraction is cut off; ours is rounded once, at the end.
    # By a denormal number older versions give NaN.
    ("div.trunc_rounding", (torch.bfloat16, torch.float16)),
    # The sum is rounded at each product of the batch; ours is one product.
    ("addbmm", (torch.bfloat16, torch.float16)),
    *([("fmod", (torch.bfloat16,)), ("remainder", (torch.bfloat16,))] if torch.__version__ < "2.13" else ()),
}


def name_of(op):
    """For example div.trunc_rounding."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def cases(op, dtype, samples, gradients):
    """The first so many samples."""
    return itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), samples)


def run(op, dtype, samples, gradients=False):
    """Each comparison of one operator in one element type: a dict, whose "found" is None or what differs."""
    if any(name_of(op) == name and dtype in dtypes for name, dtypes in KNOWN):
        return
    for i, sample in enumerate(cases(op, dtype, samples, gradients)):
        arguments = (sample.input, list(sample.args), dict(sample.kwargs))
        for way, function in ways(op, sample, gradients):
            mode = contextlib.nullcontext() if gradients else torch.no_grad()
            try:
                with mode:
                    found = check(function, arguments, values=op.name not in NO_VALUES)
            except Exception:
                found = "".join(traceback.format_exc(limit=-3)).strip()[-600:]
            yield {
                "op": name_of(op),
                "dtype": str(dtype).removeprefix("torch."),
                "way": way,
                "sample": i,
                "found": found,
            }


def database():
    """PyTorch's operators with their samples."""
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def takes(op, dtype, gradients=False):
    """Whether there are samples of that element type."""
    return op.supports_dtype(dtype, "cpu") and (op.supports_autograd or not gradients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    parser.add_argument("--gradients", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # making the samples is noisy
    index, count = map(int, args.shard.split("/"))
    ops = [op for op in database() if not args.ops or op.name in args.ops][index::count]
    done = bad = 0
    for op, dtype in itertools.product(ops, (getattr(torch, d) for d in args.dtypes)):
        if not takes(op, dtype, args.gradients):
            continue
        print(f"# {name_of(op)} {dtype}", file=sys.stderr, flush=True)
        for line in run(op, dtype, args.samples, args.gradients):
            done += 1
            if line["found"]:
                bad += 1
                print(json.dumps(line), flush=True)
    print(json.dumps({"done": done, "bad": bad}))
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
