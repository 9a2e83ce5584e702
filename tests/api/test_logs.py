# tests/api/test_logs.py
"""TORCHBOLT_LOGS, TORCH_LOGS, set_logs, and explain() as JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest
import torch

import torchbolt
from torchbolt import torch_names

PROGRAM = """
import torch, torchbolt
def f(x):
    y = torch.relu(x * 2)
    torchbolt.graph_break()
    return y.sum(-1)
compiled = torchbolt.compile(f)
with torch.no_grad():
    compiled(torch.ones(2, 3)); compiled(torch.ones(4, 3))
"""


def logged(**env):
    env = {k: v for k, v in os.environ.items() if k not in ("TORCH_LOGS", "TORCHBOLT_LOGS")} | env
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("[torchbolt ")]


def names(lines):
    return {line[len("[torchbolt ") :].split("]")[0] for line in lines}


def test_nothing_is_said_unless_asked_for():
    assert logged() == []


def test_where_regions_end():
    lines = logged(TORCHBOLT_LOGS="graph_breaks")
    assert names(lines) == {"graph_breaks"}
    assert "f: graph_break() is called" in lines[0] and "<string>:5 in f" in lines[1]


def test_recompiles_name_the_guard_and_the_values():
    lines = logged(TORCHBOLT_LOGS="recompiles")
    assert "f is recorded again, because x is Float[2, 3] strides (3, 1) on cpu (now Float[4, 3]" in lines[0]


@pytest.mark.parametrize(
    "name, text",
    [
        ("guards", "f: "),
        ("graph_code", "aten::relu(%"),
        ("aot_graphs", "relu"),
        ("post_grad_graphs", "return"),
        ("fusion", "plan @"),
        ("schedule", ":"),
        ("output_code", "define"),
        ("cache", "disk cache"),
    ],
)
def test_a_stage(name, text, tmp_path):
    lines = logged(TORCHBOLT_LOGS=name, TORCHBOLT_CACHE_DIR=str(tmp_path))
    if name == "cache":
        text = "compiled"
    assert names(lines) == {name} and any(text in line for line in lines), lines


def test_another_name():
    assert names(logged(TORCHBOLT_LOGS="graph")) == {"graph_code"}
    assert names(logged(TORCHBOLT_LOGS="recompiles_verbose")) == {"recompiles_verbose"}


def test_what_becomes_a_symbol():
    assert any("become symbols: x.size(0)" in line for line in logged(TORCHBOLT_LOGS="dynamic"))


def test_groups_and_signs():
    assert names(logged(TORCHBOLT_LOGS="dynamo,-guards")) == {"graph_breaks", "recompiles", "graph_code", "dynamic"}
    assert {"graph_breaks", "fusion", "output_code"} <= names(logged(TORCHBOLT_LOGS="all"))


def test_torchs_variable_counts():
    assert names(logged(TORCH_LOGS="graph_breaks")) == {"graph_breaks"}


def test_a_file(tmp_path):
    file = tmp_path / "log.txt"
    assert logged(TORCHBOLT_LOGS="graph_breaks", TORCHBOLT_LOGS_OUT=str(file)) == []
    assert "graph_break() is called" in file.read_text()


def test_torchs_variable_for_a_file(tmp_path):
    ours, torchs = tmp_path / "ours.txt", tmp_path / "torchs.txt"
    assert logged(TORCHBOLT_LOGS="graph_breaks", TORCH_LOGS_OUT=str(torchs)) == []
    assert "graph_break() is called" in torchs.read_text()
    logged(TORCHBOLT_LOGS="guards", TORCH_LOGS_OUT=str(torchs), TORCHBOLT_LOGS_OUT=str(ours))
    assert "[torchbolt guards]" in ours.read_text() and "guards" not in torchs.read_text()


@pytest.mark.parametrize("variable", ["TORCHBOLT_LOGS", "TORCH_LOGS"])
def test_names_of_torchs_in_a_variable_are_answered(variable):
    env = {k: v for k, v in os.environ.items() if k not in ("TORCH_LOGS", "TORCHBOLT_LOGS")}
    env[variable] = "+bytecode,autograd,graph_breaks"
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.startswith("torchbolt:")]
    assert said[0].startswith(f"torchbolt: {variable}: 'bytecode' shows nothing here: the call runs as it is")
    # Torch shows its other logs, where its own variable asks for them.
    assert ["'autograd'" in line for line in said[1:]] == [True] * (variable == "TORCHBOLT_LOGS")
    assert "[torchbolt graph_breaks]" in done.stderr and "unknown" not in done.stderr


INSTALLED = """
import logging, time, warnings, torch, torchbolt
torchbolt.install()
program = torch.compile(lambda x: x + time.clock_gettime(0))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch._logging.set_logs(graph_breaks=True, dynamo=logging.ERROR, bytecode=True, autograd=logging.INFO)
assert ["'bytecode' shows nothing of torchbolt" in str(w.message) for w in told] == [True], told
assert told[0].filename == "<string>"
program(torch.ones(1))
torch._logging.set_logs(inductor=logging.DEBUG)  # in place of what was asked for before
torch.compile(lambda x: (x + time.clock_gettime(0)).sum())(torch.ones(2))
ours = torch._logging.set_logs
torchbolt.uninstall()
assert torch._logging.set_logs is ours.__wrapped__
"""


def test_torchs_function_after_install():
    env = {k: v for k, v in os.environ.items() if k not in ("TORCH_LOGS", "TORCHBOLT_LOGS")} | {
        "TORCHBOLT_LOGS": "guards"
    }
    done = subprocess.run([sys.executable, "-c", INSTALLED], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("[torchbolt ")]
    seen = [line[len("[torchbolt ") :].split("]")[0] for line in lines]
    assert {"guards", "graph_breaks", "fusion", "output_code"} <= set(seen)
    assert "graph_breaks" not in seen[seen.index("fusion") :] and "fusion" not in seen[: seen.index("graph_breaks")]


def test_help_and_unknown_names():
    env = os.environ | {"TORCHBOLT_LOGS": "graf_breaks"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert "unknown names: graf_breaks" in done.stderr and "perf_hints" in done.stderr
    with pytest.raises(ValueError, match="Did you mean 'graph_breaks'"):
        torchbolt.set_logs("graf_breaks")
    assert "graph_breaks" in torchbolt.list_logs()


def test_set_logs(capfd):
    torchbolt.set_logs(graph_breaks=True)
    try:
        with torch.no_grad():
            torchbolt.compile(lambda x: x + time.clock_gettime(0))(torch.ones(1))
    finally:
        torchbolt.set_logs()
    assert "[torchbolt graph_breaks]" in capfd.readouterr().err


def test_every_log_of_torchs_is_taken_or_answered():
    registered = torch._logging._internal.log_registry
    theirs = {*registered.log_alias_to_log_qnames, *registered.artifact_names} - {"custom_format_test_artifact"}
    assert len(theirs) > 50 and theirs <= {*torchbolt.list_logs(), *torch_names.LOGS}
    assert not set(torchbolt.list_logs()) & set(torch_names.LOGS)
    try:
        with pytest.warns(UserWarning, match="'bytecode' shows nothing here: the call runs as it is"):
            torchbolt.set_logs("bytecode,ir_post_fusion")
    finally:
        torchbolt.set_logs()


def test_another_name_shows_the_same():
    assert names(logged(TORCHBOLT_LOGS="ir_post_fusion,kernel_code")) == {"fusion", "output_code"}


def test_functions_of_torchs_that_are_not_here_say_what_is():
    for name, instead in torch_names.FUNCTIONS.items():
        with pytest.raises(AttributeError, match=re.escape(instead)):
            getattr(torchbolt, name)
    with pytest.raises(AttributeError, match="has no attribute 'compyle'$"):
        torchbolt.compyle  # noqa: B018


def test_explain_as_json():
    def f(x):
        y = x * 2
        time.sleep(0)
        return y + 1

    with torch.no_grad():
        facts = json.loads(torchbolt.explain(f)(torch.ones(3)).to_json())
    (reason,) = facts["break_reasons"]
    assert reason["source"] == reason["expression"] == "time.sleep(0)" and reason["id"] == "B1"
    assert reason["cause"] == "calls_unknown" and reason["reason"].endswith("not known: time.sleep")
    assert reason["column"] == 8 and reason["end_column"] == 21 and reason["file"] == __file__
    assert "measure around" in reason["hint"] and reason["user_stack"][-1]["function"] == "f"
    assert reason["user_stack"][-1]["line"] == f.__code__.co_firstlineno + 2
    assert facts["graph_count"] == 2 and facts["graph_break_count"] == 1 and facts["recompiles"] == []


def test_recompiles_of_a_callable():
    compiled = torchbolt.compile(lambda x, k: x * k)
    with torch.no_grad():
        compiled(torch.ones(2), 2), compiled(torch.ones(2), 3)
    (again,) = torchbolt.api.compiled_of(compiled)._recompiles()
    assert "k == 2 (now 3)" in again["guard"]


@pytest.mark.parametrize(
    "again, why",
    [
        (lambda f, x: f(x, x), "1 positional arguments (now 2)"),
        (lambda f, x: f(x, b=1), "keywords are () (now ('b',))"),
    ],
)
def test_calls_of_another_form_say_so(again, why):
    compiled = torchbolt.compile(lambda x, *more, **named: x + len(more) + len(named))
    x = torch.ones(2)
    compiled(x)
    assert again(compiled, x).tolist() == [2, 2]
    (recompiled,) = torchbolt.api.compiled_of(compiled)._recompiles()
    assert recompiled["guard"] == why


def test_modules_and_their_arguments_are_called_by_name(capfd):
    class Net(torch.nn.Module):
        def forward(self, x, mode):
            return x * 2 if mode == "twice" else x

    torchbolt.reset()
    net = torchbolt.compile(Net())
    torchbolt.set_logs("recompiles")
    try:
        for mode in ("twice", "once"):
            net(torch.ones(2), mode)
    finally:
        torchbolt.set_logs("")
    assert "Net.forward is recorded again, because mode == 'twice' (now 'once')" in capfd.readouterr().err
