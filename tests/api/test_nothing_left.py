# tests/api/test_nothing_left.py
"""A call that ends with an error of the compiler's (fullgraph, a backend that fails) leaves nothing of what it wrote."""

from __future__ import annotations

import collections
import contextvars

import pytest
import torch

import torchbolt

COUNT, VARIABLE = 0, contextvars.ContextVar("variable", default=0)


class Slots:
    __slots__ = ("n",)


class Holder:
    def __init__(self):
        self.n, self.gone, self.more = 1, 2, None


def world():
    cell = 5
    slots, weight = Slots(), torch.ones(2, requires_grad=True)
    slots.n, weight.grad = 3, torch.zeros(2)
    things = {
        "list": [1, 2],
        "sorted": [3, 1, 2],
        "dict": {"a": 1, "b": 2},
        "ordered": collections.OrderedDict(a=1, b=2),
        "set": {1, 2},
        "deque": collections.deque([1, 2]),
        "holder": Holder(),
        "slots": slots,
        "module": torch.nn.Linear(2, 2),
        "weight": weight,
    }

    def write(x):
        global COUNT
        nonlocal cell
        things["list"].append(x)
        things["sorted"].sort()
        things["dict"]["c"] = things["dict"].pop("a")
        things["ordered"].move_to_end("a")
        things["ordered"]["c"] = x
        things["set"].add(7)
        things["deque"].appendleft(x)
        things["holder"].n = x
        del things["holder"].gone
        things["holder"].new = x + 1
        things["slots"].n = 4
        things["module"].train(False)
        things["module"].extra = x
        things["weight"].grad = None
        COUNT += 1
        cell += 1
        VARIABLE.set(COUNT)
        return x * 2 + torch.rand(())

    def state():
        plain = {k: v for k, v in things.items() if isinstance(v, list | dict | set | collections.deque)}
        order = [list(v) for v in plain.values()]
        objects = vars(things["holder"]), list(vars(things["holder"])), things["slots"].n, things["weight"].grad
        module = things["module"].training, list(vars(things["module"]))
        return repr((plain, order, objects, module, COUNT, cell, VARIABLE.get(), torch.get_rng_state().sum()))

    return write, state


def ends(write):
    def fn(x):
        y = write(x)
        torchbolt.graph_break()
        return y

    return fn


def ends_in_a_block(write):
    inside = []

    class Around:
        def __enter__(self):
            inside.append(1)

        def __exit__(self, *_):
            assert inside.pop() == 1 and not inside

    def fn(x):
        with Around():
            y = write(x)
            return y * 2 if y.sum().item() > 0 else y

    return fn


@pytest.mark.parametrize("make", [ends, ends_in_a_block], ids=["graph_break", "with"])
def test_end_under_fullgraph(make):
    torchbolt.reset()
    write, state = world()
    compiled, before = torchbolt.compile(make(write), fullgraph=True), state()
    for _ in range(3):
        with pytest.raises(torchbolt.exc.GraphBreak):
            compiled(torch.ones(2))
        assert state() == before


def test_backend_that_fails():
    def backend(graph, inputs):
        raise ValueError("no")

    torchbolt.reset()
    write, state = world()
    compiled, before = torchbolt.compile(write, backend=backend), state()
    with pytest.raises(torchbolt.exc.BackendCompilerFailed):
        compiled(torch.ones(2))
    assert state() == before


def test_what_a_kept_recording_did_stays():
    torchbolt.reset()
    write, state = world()
    before = state()
    torchbolt.compile(write)(torch.ones(2))
    assert state() != before
