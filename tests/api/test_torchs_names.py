# tests/api/test_torchs_names.py
"""Names of torch.compile's that programs reach: after install() they are torchbolt's, or one sentence says what is."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import torchbolt
from torchbolt import environment, options, torch_names


def run(program, **variables):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | variables)
    assert done.returncode == 0, done.stderr
    return done


DYNAMO = """
import warnings, torch, torchbolt
torch.set_grad_enabled(False)
torchbolt.install()
import torch._dynamo, torch._inductor.config  # the user's own imports
def counted(fn):
    before = torchbolt.stats()["recordings"]
    fn()
    return torchbolt.stats()["recordings"] - before
def f(x): return x.sin() * 2
def broken(x): return f(x) if x.sum() > 0 else x
x = torch.ones(3)
for optimize in (torch._dynamo.optimize, torch._dynamo.optimize_assert):
    for backend in ((), ("inductor",), ("eager",), (lambda graph, inputs: graph.forward,)):
        compiled = optimize(*backend)(lambda x: f(x))
        assert counted(lambda: compiled(x)) == 1 and torch.allclose(compiled(x), f(x))
assert torch._dynamo.optimize(disable=True)(f) is f
for named in (torch._dynamo.optimize(nopython=True), torch._dynamo.optimize_assert("inductor")):
    try: named(broken)(x)
    except torchbolt.GraphBreak: pass
    else: raise AssertionError
compiled = torch._dynamo.optimize()(f)
compiled(x)
assert counted(lambda: torch._dynamo.run(compiled)(x)) == 0
assert counted(lambda: torch._dynamo.run()(torch.compile(lambda x: x + 1))(x)) == 0
assert torch._dynamo.list_backends() == torchbolt.list_backends()
with torch._dynamo.set_stance("force_eager"):
    assert counted(lambda: torch.compile(lambda x: x - 1)(x)) == 0
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch._dynamo.callback.on_compile_start(lambda *_: None)
assert ["torchbolt.stats() counts" in str(w.message) for w in told] == [True], told
assert "compile_seconds" in torch._dynamo.utils.compile_times()
assert torch._dynamo.utils.compile_times(repr="csv")[0] == ["recordings", "compile_seconds"]

def asked(**arguments):
    return dict(torch.compile(f, **arguments)._asked.options.extra)
torch._inductor.config.max_autotune = True
torch._inductor.config.triton.cudagraphs = True
torch._inductor.config.coordinate_descent_tuning = True
assert asked() == {"max_autotune": True, "triton.cudagraphs": True}, asked()
assert asked(options={"max_autotune": False})["max_autotune"] is False
with torch._inductor.config.patch(max_autotune=False, emulate_precision_casts=True):
    assert asked() == {"triton.cudagraphs": True, "numerics": "eager"}, asked()
    assert asked(options={"numerics": "fast"})["numerics"] == "fast"
assert "max_autotune" in asked() and "numerics" not in asked()
torchbolt.uninstall()
assert torch._dynamo.optimize.__module__ == "torch._dynamo.eval_frame"
"""


def test_names_of_torch_dynamo():
    run(DYNAMO)


def test_every_name_of_torch_dynamo_has_an_answer():
    """Taken over by install(), a mark that is understood, torchbolt's under the same name, or a sentence."""
    done = run("import torch._dynamo; print(*torch._dynamo.__all__)")
    taken = (pathlib.Path(torchbolt.__file__).parent / "install.py").read_text()
    inside = {  # of torch's own tables and traces, which we do not fill
        "allow_c_slot", "bytecode_debugger", "export", "is_dynamo_disable_recursive", "is_dynamo_supported", "is_inductor_supported", "lookup_backend", "OptimizedModule",
        "register_hook_for_recompile_user_context", "replay", "reset_code", "reset_recompile_user_contexts", "reset_frame_count",
    }  # fmt: skip
    left = [
        name
        for name in done.stdout.split()
        if not (hasattr(torchbolt, name) or name in torch_names.FUNCTIONS or name in inside or f'"{name}"' in taken)
    ]
    assert left == []


@pytest.mark.parametrize("name", torch_names.FUNCTIONS)
def test_what_is_not_needed_says_why(name):
    with pytest.raises(AttributeError, match=re.escape(torch_names.FUNCTIONS[name])):
        getattr(torchbolt, name)


def variables_of_torch():
    """Names in quotes in the source of torch's compiler."""
    root = pathlib.Path(torch.__file__).parent
    files = [root / "__init__.py", root / "compiler" / "config.py", *root.glob("_logging/*.py")]
    files += [file for folder in ("_dynamo", "_inductor", "_functorch") for file in root.glob(f"{folder}/**/*.py")]
    for file in files:
        yield from re.findall(r'"((?:TORCH_COMPILE|TORCHINDUCTOR|TORCHDYNAMO|TORCH_DYNAMO)_\w+)"', file.read_text())


def test_every_variable_of_torchs_compiler_is_answered():
    names = set(variables_of_torch())
    assert len(names) > 100 and set(environment.EFFECTIVE) - names <= {"TORCH_LOGS", "TORCH_LOGS_OUT"}
    assert [name for name in sorted(names) if not environment.answer(name)] == []
    assert (
        environment.answer("TORCHINDUCTOR_FREEZING")
        == "has no effect: weights are always folded and packed, and watched for changes"
    )
    assert environment.answer("PATH") is None and environment.answer("TORCHBOLT_CACHE") is None


def test_variables_with_an_effect():
    asked = """
import torch, torchbolt
def f(x): return x + 1
compiled = torchbolt.compile(f)
print(compiled._asked.options.backend, dict(compiled._asked.options.extra), torchbolt.config.force_disable_caches)
"""
    on = {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCHINDUCTOR_CUDAGRAPHS": "1", "TORCH_COMPILE_FORCE_DISABLE_CACHES": "1"}
    assert run(asked, **on).stdout.strip() == "torchbolt {'max_autotune': True, 'triton.cudagraphs': True} True"
    assert run(asked, TORCH_COMPILE_BACKEND="eager").stdout.strip() == "eager {} False"


def test_what_would_be_waited_for_in_vain_is_said():
    done = run("import torchbolt", TORCH_TRACE="traces", TORCHINDUCTOR_FREEZING="1", TORCHINDUCTOR_NAN_ASSERTS="0")
    assert done.stderr.splitlines() == [
        "torchbolt: TORCH_TRACE has no effect on torchbolt: " + environment._SHOWS_NOTHING["TORCH_TRACE"]
    ]


def test_probe_answers_the_variables_that_are_set(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", "somewhere")
    found = environment.set_here()
    assert found["TRITON_CACHE_DIR"] == "has no effect: torchbolt uses no Triton" and "TORCHINDUCTOR_FREEZING" in found


def test_no_default_is_an_option_without_effect():
    assert not any(options.OPTIONS[name].is_accepted for name in options._FOLLOWED)
