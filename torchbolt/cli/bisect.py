# torchbolt/cli/bisect.py
"""Finds the smallest part of TARGET that gives other results than eager, raises, or crashes when it is compiled: first
the stage, then the region, then the operators in it, then the pass and the fusion. Writes a program that shows it,
which needs nothing of TARGET. The exit code is 0 if nothing is wrong, and 1 if something was found.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import torch

from torchbolt import _C, explanation
from torchbolt.cli import output, repro, trial
from torchbolt.cli import target as targets
from torchbolt.cli.errors import UsageError
from torchbolt.cli.state import seeded

SUMMARY = "find the smallest region, operators and pass that change a result or crash; write a repro"
TAKES_TARGET = True

# backend= -> the stage that is the last to take part.
_STAGES = {
    "eager": "recording",
    "aot_eager": "lowering to the functional graph",
    "torchbolt": "compiling",
}


def arguments(parser) -> None:
    targets.arguments(parser)
    parser.add_argument("--tolerance", type=float, help="allowed difference from eager; default: rounding, by dtype")
    parser.add_argument("--out", default="repro.py", metavar="FILE", help="where the program goes (default: repro.py)")
    parser.add_argument("--isolate", action="store_true", help="each trial in a process of its own from the beginning")


def main(args):
    """(facts, text, exit code)."""
    facts = Search(args).run()
    return facts, _text(facts), 1 if facts["found"] else 0


class Search:
    """Trials, from the whole target to a few operators of one region."""

    def __init__(self, args):
        self.args, self.trials = args, 0
        self.target = targets.of(args)
        self.isolated = args.isolate

    def run(self) -> dict:
        self._eager_is_settled()
        whole = self._isolated({})
        if whole["outcome"] == "same":
            return {"target": self.target.name, "found": False, "why": whole["why"], "trials": self.trials}
        self.isolated |= whole["outcome"] == "crashes"
        facts = {"target": self.target.name, "found": True, "tolerance": self.args.tolerance or 0.0} | whole
        facts["stage"] = self._stage()
        if facts["stage"] == "compiling":
            facts |= self._inside()
        with output.writing(self.args.out):
            facts["repro"] = repro.write(self.args.out, self.target, facts)
        facts["trials"] = self.trials
        return facts

    def _eager_is_settled(self) -> None:
        """What differs from itself cannot be compared."""
        try:
            first, second = (seeded(self.target) for _ in range(2))
        except Exception as error:
            raise UsageError(f"{self.target.name} fails in eager, too: {type(error).__name__}: {error}") from error
        allowed = self.args.tolerance and max(self.args.tolerance, 0.0)
        if trial.judged(self.target, first, second, allowed)["outcome"] != "same":
            raise UsageError(f"{self.target.name} gives other results at each call in eager, with equal seeds")

    # ---- trials ----

    def _said(self, request: dict) -> None:
        self.trials += 1
        if sys.stderr.isatty():
            print(f"\r\033[K  trial {self.trials}: {json.dumps(request)[:100]}", end="\r", file=sys.stderr, flush=True)

    def _try(self, request: dict) -> dict:
        if self.isolated:
            return self._isolated(request)
        self._said(request)
        return trial.run(self.target, request, self.args.tolerance)

    def _isolated(self, request: dict) -> dict:
        self._said(request)
        asked = json.dumps({"arguments": vars(self.args), "request": request})
        command = [sys.executable, "-m", "torchbolt.cli.trial"]
        done = subprocess.run(command, input=asked, capture_output=True, text=True)
        if done.returncode < 0:
            return {"outcome": "crashes", "why": signal.Signals(-done.returncode).name}
        if done.returncode:
            raise UsageError(f"a trial failed:\n{done.stderr}")
        return json.loads(done.stdout)

    def _fails(self, request: dict) -> bool:
        return self._try(request)["outcome"] != "same"

    # ---- narrowing down ----

    def _stage(self) -> str:
        return next((stage for backend, stage in _STAGES.items() if self._fails({"backend": backend})), "compiling")

    def _inside(self) -> dict:
        """The region, its operators, the passes and the fusion."""
        regions = trial.captured(self.target)
        k = self._region(len(regions.graphs))
        if k is None:
            return {"regions": len(regions.graphs), "region": None}
        nodes = trial.computing(regions.graphs[k])
        first, last = self._operators(k, len(nodes))
        facts = {"regions": len(regions.graphs), "region": k, "first": first, "last": last}
        gm, inputs = trial.part(regions.graphs[k], regions.inputs[k], first, last)
        self.part = (gm, inputs)
        facts["operators"] = [str(node.target) for node in nodes[first : last + 1]]
        facts["lines"] = [str(node.meta.get("stack_trace", "")).strip() for node in nodes[first : last + 1]]
        request = {"region": k, "first": first, "last": last}
        facts["without_pass"] = self._passes(request)
        facts["fusion"] = self._fusion(request, last - first + 1)
        facts["kernels"] = [] if self.isolated else _kernels(gm, inputs)
        facts["part"] = self.part
        return facts

    def _region(self, count: int):
        """The one that fails alone, by halves; None: none does."""
        some = list(range(count))
        if not self._fails({"regions": some}):
            return None
        while len(some) > 1:
            half = some[: len(some) // 2]
            rest = some[len(some) // 2 :]
            some = half if self._fails({"regions": half}) else rest
        return some[0]

    def _operators(self, k: int, count: int) -> tuple[int, int]:
        """The shortest row of operators that fails: first its end, then its beginning, by halves."""

        def fails(first, last):
            return self._fails({"region": k, "first": first, "last": last})

        if not fails(0, count - 1):
            return 0, count - 1
        low, last = 0, count - 1
        while low < last:
            middle = (low + last) // 2
            low, last = (low, middle) if fails(0, middle) else (middle + 1, last)
        first, high = 0, last
        while first < high:
            middle = (first + high + 1) // 2
            first, high = (middle, high) if fails(middle, last) else (first, middle - 1)
        return first, last

    def _passes(self, request: dict) -> list[str]:
        """Those without which nothing is wrong."""
        names = [line.split()[0] for line in _C._opt("", ["--list"])[0].splitlines()]
        without = {name: request | {"environment": {"TORCHBOLT_DISABLE_PASSES": name}} for name in names}
        return [name for name, asked in without.items() if not self._fails(asked)]

    def _fusion(self, request: dict, most: int):
        """The number of the fusion with which it begins; 0: it needs none; None: no number of them decides."""

        def fails(fuel):
            return self._fails(request | {"environment": {"TORCHBOLT_FUEL": str(fuel)}})

        if fails(0):
            return 0
        low, high = 1, 8 * most
        if not fails(high):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fails(middle) else (middle + 1, high)
        return low


def _kernels(gm, inputs) -> list[str]:
    """Texts of the kernels that the part becomes."""
    with torch.no_grad():
        seen = explanation.explain(gm)(*inputs)
    return [text for plan in seen.plans for text in repro.kernels_of(plan)]


def _text(facts) -> str:
    if not facts["found"]:
        return f"{facts['target']}: compiled and eager agree ({output.count(facts['trials'], 'trial')})"
    shown = [("what", f"{facts['outcome']}: {facts['why']}"), ("stage", facts["stage"])]
    if facts.get("region") is not None:
        shown += [
            ("region", f"{facts['region'] + 1} of {facts['regions']}"),
            ("operators", ", ".join(facts["operators"])),
            ("lines", "; ".join(dict.fromkeys(line.replace("\n", " ") for line in facts["lines"] if line))),
            ("passes", "none is needed for it" if not facts["without_pass"] else
             "right without " + " or without ".join(facts["without_pass"])),
            ("fusion", {None: "not decided by one", 0: "none is needed for it"}.get(
                facts["fusion"], f"begins with number {facts['fusion']} (TORCHBOLT_FUEL)")),
        ]  # fmt: skip
    shown += [("repro", facts["repro"]), ("trials", facts["trials"])]
    return "\n".join([output.section(facts["target"], shown), *facts.get("kernels", [])])
