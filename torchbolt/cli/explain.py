# torchbolt/cli/explain.py
"""Calls TARGET once, compiled anew, and tells what was made of it: where regions end and why, with the source lines,
guards, recompiles, kernels, and the time of each stage. As text, as JSON, or as a page for the browser.
"""

from __future__ import annotations

import contextlib
import json

import torch

from torchbolt import api, explanation, reports
from torchbolt.cli import compare, output
from torchbolt.cli import target as targets

SUMMARY = "what became of a call: breaks with source lines, guards, recompiles, kernels; text, JSON, HTML"
TAKES_TARGET = True
_WARM_UP = 3  # calls: weights are packed in the second


def arguments(parser) -> None:
    targets.arguments(parser)
    parser.add_argument("--html", metavar="FILE", help="write the report to this file, with measured times of kernels")


def _with_backward(result) -> None:
    """The other half of regions with gradients; a whole step's loss says that it has gone through its graph itself."""
    wanted = [leaf for _, leaf in compare.leaves(result) if isinstance(leaf, torch.Tensor) and leaf.grad_fn]
    with contextlib.suppress(RuntimeError):
        torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])


def main(args):
    """(facts, text, exit code)."""
    target = targets.of(args)
    with targets.told(target):
        seen = target.call(explanation.explain(target.fn, **target.options))
    facts, text = json.loads(seen.to_json()), str(seen)
    if args.html:
        compiled = target.compiled()
        for _ in range(_WARM_UP):
            _with_backward(target.call(compiled))
        api.wait()
        measured = reports.measured(lambda: _with_backward(target.call(compiled)))
        with output.writing(args.html):
            facts["html"] = reports.of_warm(args.html, compiled, target.name, measured)
        text += f"\nReport: {facts['html']}"
    return facts, text, 0
