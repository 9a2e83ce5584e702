"""Calls TARGET once, compiled anew, and tells what was made of it: where regions end and why, with the source lines,
guards, recompiles, kernels, and the time of each stage.
"""

from __future__ import annotations

import json

from torchbolt import explanation
from torchbolt.cli import target as targets

SUMMARY = "what became of a call: breaks with source lines, guards, recompiles, kernels"
TAKES_TARGET = True


def arguments(parser) -> None:
    targets.arguments(parser)


def main(args):
    """(facts, text, exit code)."""
    target = targets.of(args)
    seen = target.call(explanation.explain(target.fn, **target.options))
    return json.loads(seen.to_json()), str(seen), 0
