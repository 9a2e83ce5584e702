# torchbolt/cli/trial.py
"""One call of a target under some settings, compared with eager: what bisect.py asks again and again.

    {"backend": "torchbolt" | "aot_eager" | "eager"}     the target as it is
    {"regions": [k, ...]}                                only these regions compiled, the others run by FX
    {"region": k, "first": i, "last": j}                 nodes i to j of one region's graph alone
    and with each: {"environment": {...}}

The answer is {"outcome": "same" | "differs" | "raises", "why": ...}. `python -m torchbolt.cli.trial` reads one such
request and the command line's arguments from standard input, since some bugs end the process.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
from contextlib import contextmanager
from unittest import mock

import torch
import torch.fx

from torchbolt import api
from torchbolt.cli import compare
from torchbolt.cli import target as targets
from torchbolt.cli.state import seeded

_CALLS = 4  # the first is eager's own, recorded; weights are packed at the second; a region compiled apart is one later


@contextmanager
def _environment(given: dict):
    with mock.patch.dict(os.environ, given):
        yield


def judged(target, expected, got, tolerance) -> dict:
    if tolerance is None:
        seen = compare.verdict(target, expected, got)
        return {"outcome": "same" if seen["same"] else "differs", "why": seen["why"]}
    if problem := compare.other_form(expected, got):
        return {"outcome": "differs", "why": problem}
    difference = compare.distance(expected, got)
    outcome = "differs" if difference > tolerance else "same"
    return {"outcome": outcome, "why": f"the largest difference is {difference:.3g}", "difference": difference}


_PROGRAMS = {"measure": False}  # what is looked at is the program, in every call


class Regions:
    """A backend: keeps each region's graph and inputs, and compiles those that were chosen."""

    def __init__(self, chosen=()):
        self.chosen, self.graphs, self.inputs = set(chosen), [], []

    def __call__(self, gm, inputs):
        index = len(self.graphs)
        self.graphs.append(gm)
        self.inputs.append([v.detach().clone() if isinstance(v, torch.Tensor) else v for v in inputs])
        return api.compile(gm.forward, options=_PROGRAMS) if index in self.chosen else gm.forward


def captured(target) -> Regions:
    """The regions of a call, none of them compiled."""
    regions = Regions()
    compiled = api.compile(target.fn, **target.options | {"backend": regions})
    seeded(target, compiled)
    return regions


def part(gm, inputs, first: int, last: int):
    """Nodes `first` to `last` of a graph that compute something, alone: (GraphModule, inputs)."""
    values = _values(gm, inputs)
    nodes = computing(gm)[first : last + 1]
    graph, copies, given = torch.fx.Graph(), {}, []

    def of(node):
        if node not in copies:
            if node.op == "get_attr":
                copies[node] = graph.node_copy(node)
            else:
                copies[node] = graph.placeholder(node.name)
                given.append(values[node])
        return copies[node]

    for needed in [n for node in nodes for n in node.all_input_nodes if n not in nodes]:
        of(needed)
    for node in nodes:
        copies[node] = graph.node_copy(node, of)
    graph.output(tuple(copies[n] for n in nodes if _is_result(n, nodes, values)))
    return torch.fx.GraphModule(gm, graph), given


def computing(gm) -> list:
    return [node for node in gm.graph.nodes if node.op in ("call_function", "call_method", "call_module")]


def _is_result(node, nodes, values) -> bool:
    """Nobody among `nodes` uses it, and it can be given."""
    return not any(user in nodes for user in node.users) and isinstance(values[node], torch.Tensor)


def _values(gm, inputs) -> dict:
    """Node -> its value in a run of eager's operators."""
    found = {}

    class Keeping(torch.fx.Interpreter):
        def run_node(self, node):
            found[node] = value = super().run_node(node)
            if isinstance(value, torch.Tensor):
                found[node] = value.clone()
            return value

    torch.manual_seed(0)
    with torch.no_grad():
        Keeping(gm).run(*copy.deepcopy(inputs))
    return found


def _of_request(target, request):
    """What is to be called in place of the target, and what compiles it."""
    if "region" in request:
        regions = captured(target)
        k = request["region"]
        gm, inputs = part(regions.graphs[k], regions.inputs[k], request["first"], request["last"])
        alone = targets.Target(f"region {k}", gm, tuple(inputs))
        return alone, lambda t: api.compile(gm, options=_PROGRAMS)
    backend = Regions(request["regions"]) if "regions" in request else request.get("backend", "torchbolt")
    return target, lambda t: api.compile(t.fn, **t.options | {"backend": backend})


def run(target, request: dict, tolerance=None) -> dict:
    """One trial in this process."""
    with _environment(request.get("environment", {})):
        api.reset()
        what, compiling = _of_request(target, request)
        expected = seeded(what)
        try:
            compiled = compiling(what)
            for _ in range(_CALLS):
                got = seeded(what, compiled)
                api.wait()
                seen = judged(what, expected, got, tolerance)
                if seen["outcome"] != "same":
                    return seen
            return seen
        except Exception as error:
            return {"outcome": "raises", "why": f"{type(error).__name__}: {error}"}


def main() -> None:
    asked = json.load(sys.stdin)
    channel = os.fdopen(os.dup(1), "w")  # programs print what they like; the answer keeps the real output
    os.dup2(2, 1)
    target = targets.of(argparse.Namespace(**asked["arguments"]))
    json.dump(run(target, asked["request"], asked["arguments"].get("tolerance")), channel)


if __name__ == "__main__":
    main()
