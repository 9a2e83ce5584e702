# tests/api/test_backend_names.py
"""Backends by name: torch's own for debugging, ONNX Runtime, and what is said of those that are not here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch

import torchbolt
from torchbolt import backends, exc, onnxrt

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))

pytestmark = pytest.mark.usefixtures("fresh")


def fn(x):
    return (x * 2).relu().sum(-1)


@pytest.mark.parametrize("name", [name for name, native in backends.NATIVE.items() if "debug" in native.tags])
def test_torchs_names_for_debugging(name):
    x = torch.randn(3, 4)
    compiled = torchbolt.compile(fn, backend=name)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x))
    assert name not in torchbolt.list_backends() and name in torchbolt.list_backends(None)


@pytest.mark.parametrize("name", backends.REFUSED)
def test_what_is_not_here_is_answered_by_one_sentence(name):
    with pytest.raises(exc.InvalidBackend) as refused:
        torchbolt.compile(fn, backend=name)
    assert backends.REFUSED[name] in str(refused.value)
    assert torchbolt.describe_backends()[name] == f"not here: {backends.REFUSED[name]}"


TORCHS = """
import torch._dynamo, torchbolt  # the user's own import
print(*sorted(set(torch._dynamo.list_backends(None)) - set(torchbolt.describe_backends())))
"""


def test_every_name_of_torchs_is_known():
    done = subprocess.run([sys.executable, "-c", TORCHS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


SAME = """
import torch, torchbolt
from torchbolt import backends, exc

def answers():
    for name in sorted({*backends.NATIVE, *backends.REFUSED, "torch_knows_it_not"}):
        try:
            yield name, torchbolt.compile(lambda x: x, backend=name) and "taken"
        except exc.InvalidBackend as error:
            yield name, str(error)
    yield torchbolt.list_backends(None), torchbolt.describe_backends()

before = list(answers())
import torch._dynamo  # the user's own import, and a name of the user's
torch._dynamo.list_backends(None)
assert list(answers()) == before

@torch._dynamo.register_backend(name="users", tags=("experimental",))
def theirs(gm, inputs):
    "Of the user's."
    return gm.forward

assert "users" in torchbolt.list_backends(None) and "users" not in torchbolt.list_backends()
assert torchbolt.describe_backends()["users"] == "Of the user's."
assert torchbolt.compile(lambda x: x + 1, backend="users")(torch.ones(1)).item() == 2
"""


def test_the_answer_does_not_depend_on_what_torch_has_loaded():
    done = subprocess.run([sys.executable, "-c", SAME], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_have_one_line():
    lines = torchbolt.describe_backends()
    assert set(torchbolt.list_backends(None)) <= set(lines)
    assert all(line and "\n" not in line for line in lines.values())
    assert "onnxrt" in torchbolt.list_backends()


def test_onnxrt_says_what_to_install(monkeypatch):
    monkeypatch.setattr(onnxrt, "_PACKAGES", ("onnx_that_nobody_has",))
    with pytest.raises(exc.InvalidBackend, match="needs onnx_that_nobody_has: pip install onnx_that_nobody_has"):
        torchbolt.compile(fn, backend="onnxrt")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4 * 36, 5)

    def forward(self, x):
        x = self.conv(x).relu()
        torchbolt.graph_break()
        return self.linear(x.flatten(1)).softmax(-1), x.mean()


def written(x):
    return x.add_(1) * 2


def viewed(x):
    return x[0], x + 1


@pytest.mark.skipif(not HAS_ONNX, reason="ONNX Runtime, or what torch exports with, is not installed")
@pytest.mark.parametrize("case", ["net", "written", "viewed", "sizes", "integers", "halves"])
def test_onnxrt_gives_eagers_results(case):
    made = {
        "net": (Net().eval(), [torch.randn(2, 3, 8, 8)]),
        "written": (written, [torch.randn(3)]),
        "viewed": (viewed, [torch.randn(3, 3)]),
        "sizes": (fn, [torch.randn(n, 4) for n in (3, 5, 6)]),
        "integers": (lambda x: x * 2 + 1, [torch.arange(5)]),
        "halves": (lambda x: x.to(torch.bfloat16) * 2, [torch.randn(5)]),
    }
    target, inputs = made[case]
    compiled = torchbolt.compile(target, backend="onnxrt")
    for x in inputs:
        for _ in range(3):
            theirs, ours = x.clone(), x.clone()
            torch.testing.assert_close(compiled(ours), target(theirs))
            assert torch.equal(ours, theirs)
