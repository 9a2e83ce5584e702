"""disable, graph_break, is_compiling, set_stance, and torch's own marks for the same."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import torchbolt


@pytest.fixture(autouse=True)
def fresh():
    torchbolt.reset()
    with torch.no_grad():
        yield


def compiled_twice(fn, *args):
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        torch.testing.assert_close(compiled(*args), fn(*args))
    return torchbolt.stats()


def test_disabled_functions_end_the_region():
    @torchbolt.disable(reason="needs a debugger")
    def inner(x):
        assert not torchbolt.is_compiling()
        return x + 1

    def fn(x):
        return inner(x * 2) * 3

    stats = compiled_twice(fn, torch.randn(4))
    assert stats["regions"] == 2 and stats["eager_fallbacks"] == 0
    assert any("inner, which is disabled: needs a debugger" in r for r in stats["break_reasons"])


def test_disable_reaches_what_is_called():
    part = torchbolt.compile(lambda x: x * 2)

    @torchbolt.disable
    def all_of_it(x):
        return part(x) + 1

    @torchbolt.disable(recursive=False)
    def own_code_only(x):
        return part(x) + 1

    x = torch.randn(3)
    assert torch.equal(all_of_it(x), x * 2 + 1) and torchbolt.stats()["regions"] == 0
    assert torch.equal(own_code_only(x), x * 2 + 1) and torchbolt.stats()["regions"] == 1


def test_graph_break():
    def fn(x):
        y = x * 2
        torchbolt.graph_break()
        return y + 1

    stats = compiled_twice(fn, torch.randn(4))
    assert stats["break_reasons"] == {"graph_break() is called": 1} and stats["regions"] == 2


def test_is_compiling():
    seen = []

    def fn(x):
        seen.append((torchbolt.is_compiling(), torch.compiler.is_compiling()))
        return x + 1

    torchbolt.compile(fn)(torch.randn(2))
    fn(torch.randn(2))
    assert seen == [(True, True), (False, False)]


def test_stances():
    fn = torchbolt.compile(lambda x: x * 2)
    small, large = torch.randn(2), torch.randn(3)
    with torchbolt.set_stance("force_eager"):
        assert torch.equal(fn(small), small * 2) and torchbolt.stats()["regions"] == 0
    with torchbolt.set_stance("fail_on_recompile"):
        fn(small)  # the first compilation is no recompilation
        with pytest.raises(torchbolt.exc.RecompileError, match=r"x is Float\[2\]|x is float32\[2\]|\[2\]"):
            fn(large)
    with torchbolt.set_stance("eager_on_recompile"):
        assert torch.equal(fn(large), large * 2) and torchbolt.stats()["regions"] == 1
    fn(large)
    assert torchbolt.stats()["regions"] == 2

    @torchbolt.set_stance("force_eager")
    def within():
        return torchbolt.compile(lambda x: x + 5)(small)

    assert torch.equal(within(), small + 5) and torchbolt.stats()["regions"] == 2
    with pytest.raises(ValueError, match="force_eager"):
        torchbolt.set_stance("eager")


def test_torchs_own_marks_are_understood():
    program = """
import torch, torchbolt
from torch._dynamo import disable, graph_break  # the user's own import
@disable
def inner(x): return x + 1
def fn(x):
    y = inner(x * 2)
    graph_break()
    return y * 3
c = torchbolt.compile(fn)
x = torch.randn(3)
with torch.no_grad():
    for _ in range(3): assert torch.equal(c(x), fn(x))
print(torchbolt.stats()["break_reasons"], torchbolt.stats()["regions"], torchbolt.stats()["eager_fallbacks"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "disabled" in done.stdout and "graph_break() is called" in done.stdout and done.stdout.endswith(" 0\n")
