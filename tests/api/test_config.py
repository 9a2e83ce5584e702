# tests/api/test_config.py
"""torchbolt.config and torchbolt.exc: names users know, what they do, and words for names nobody knows."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

import torchbolt
from torchbolt import config, exc


@pytest.fixture(autouse=True)
def fresh():
    torchbolt.reset()
    config.reset()
    with torch.no_grad():
        yield
    config.reset()


def sizes(compiled, count):
    for n in range(1, count + 1):
        assert torch.equal(compiled(torch.ones(n)), torch.ones(n) * 2)


def double(x):
    return x * 2


def test_read_and_write():
    assert config.recompile_limit == 8 and config.cache_size_limit == 8
    config.cache_size_limit = 3
    assert config.recompile_limit == 3 and config.to_dict()["recompile_limit"] == 3
    config.reset()
    assert config.recompile_limit == 8


def test_every_setting_says_what_it_does():
    assert all(text for text in config.describe().values())
    assert {"verbose", "suppress_errors", "capture_scalar_outputs", "dynamic_shapes"} <= set(dir(config))


TORCHS_SETTINGS = """
import torch, torch._dynamo, torchbolt  # the user's own import
from torchbolt import config
for torchs in (torch._dynamo.config, torch.compiler.config):
    for name, value in torchs.get_config_copy().items():
        if name == "TYPE_CHECKING": continue
        try: setattr(config, name, value)
        except AttributeError: assert not torch.__version__.startswith("2.13"), name
        else: assert getattr(config, name) == value, name
config.reset()
"""


def test_torchs_names_are_known():
    done = run(TORCHS_SETTINGS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name, reason",
    [
        ("capture_scalar_outputs", "only where Python needs to know the number"),
        ("capture_dynamic_output_shape_ops", "only where Python asks how many"),
        ("specialize_int", "numbers that changed are followed"),
        ("use_lazy_graph_module", "the inside of torch's own compiler"),
    ],
)
def test_a_setting_without_effect_says_why(name, reason):
    assert config.describe()[name].startswith("accepted; has no effect: ") and reason in config.describe()[name]
    with config.patch(**{name: 1.5}):  # torch checks no types
        assert getattr(config, name) == 1.5


@pytest.mark.parametrize(
    "use",
    [
        lambda: config.recompile_limt,
        lambda: setattr(config, "recompile_limt", 3),
        lambda: config.patch(recompile_limt=3),
    ],
)
def test_an_unknown_name(use):
    with pytest.raises(AttributeError, match="'recompile_limt'. Did you mean 'recompile_limit'"):
        use()


def test_a_value_of_the_wrong_type():
    for name, value in {
        "recompile_limit": "many",
        "suppress_errors": "yes",
        "accumulated_recompile_limit": True,
    }.items():
        with pytest.raises(TypeError, match=f"{name} must be .*, not {value!r}"):
            setattr(config, name, value)
    config.suppress_errors = None


def test_patch():
    with config.patch(recompile_limit=2, verbose=False):
        assert config.recompile_limit == 2
        with config.patch({"recompile_limit": 3}):
            assert config.recompile_limit == 3
        assert config.recompile_limit == 2
    assert config.recompile_limit == 8

    @config.patch("recompile_limit", 5)
    def inside(again):
        assert config.recompile_limit == 5
        if again:
            inside(False)
        assert config.recompile_limit == 5

    inside(True)
    assert config.recompile_limit == 8
    with pytest.raises(KeyError), config.patch(recompile_limit=2):
        raise KeyError
    assert config.recompile_limit == 8


def test_recompile_limit_holds_for_what_was_compiled_before(caplog):
    compiled = torchbolt.compile(double, dynamic=False)
    config.recompile_limit = 2
    sizes(compiled, 4)
    assert "compiled 2 times" in caplog.text
    assert torchbolt.stats()["regions"] == 2


def test_a_limit_of_its_own_goes_first():
    config.recompile_limit = 2
    sizes(torchbolt.compile(double, dynamic=False, recompile_limit=5), 5)
    assert torchbolt.stats()["regions"] == 5


def test_the_limit_as_an_error():
    with config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        with pytest.raises(exc.FailOnRecompileLimitHit, match="double was compiled 2 times"):
            sizes(torchbolt.compile(double, dynamic=False), 3)
    with pytest.raises(exc.FailOnRecompileLimitHit):
        sizes(torchbolt.compile(double, dynamic=False, fullgraph=True, recompile_limit=1), 3)


def test_the_accumulated_limit(caplog):
    config.accumulated_recompile_limit = 3
    sizes(torchbolt.compile(double, dynamic=False, recompile_limit=100), 5)
    assert "recompile_limit" in caplog.text
    assert torchbolt.stats()["regions"] == 3


def test_error_on_recompile():
    compiled = torchbolt.compile(double, dynamic=False)
    with config.patch(error_on_recompile=True):
        compiled(torch.ones(2))
        compiled(torch.ones(2))
        with pytest.raises(exc.RecompileError, match=r"config.error_on_recompile is set.*x is Float\[2\]"):
            compiled(torch.ones(3))
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3) * 2)


def test_disable():
    with config.patch(disable=True):
        sizes(torchbolt.compile(double, dynamic=False), 3)
    assert torchbolt.stats()["regions"] == 0


def run(program, **env):
    return subprocess.run([sys.executable, "-c", program], env=os.environ | env, capture_output=True, text=True)


FAILS = """
import torch, torchbolt
torchbolt.config.suppress_errors = SUPPRESS
with torch.no_grad():
    try:
        print(torchbolt.compile(lambda x: torch.exp(x))(torch.zeros(2)))
    except torchbolt.exc.InternalTorchDynamoError as error:
        print("raised", error)
"""


def test_suppress_errors():
    quiet = run(FAILS.replace("SUPPRESS", "True"), TORCHBOLT_ISA="mmx", TORCHBOLT_STRICT="0")
    assert "tensor([1., 1.])" in quiet.stdout, quiet.stderr
    loud = run(FAILS.replace("SUPPRESS", "False"), TORCHBOLT_ISA="mmx", TORCHBOLT_STRICT="0")
    assert "raised torchbolt: TORCHBOLT_ISA" in loud.stdout, loud.stderr


def test_suppress_errors_of_a_backend():
    program = """
import torch, torchbolt
def broken(gm, inputs): raise ValueError("nothing here")
with torch.no_grad(), torchbolt.config.patch(suppress_errors=SUPPRESS):
    compiled = torchbolt.compile(lambda x: x + 1, backend=broken)
    print([compiled(torch.zeros(2)).tolist() for _ in range(4)], torchbolt.stats()["eager_fallbacks"] > 0)
"""
    quiet = run(program.replace("SUPPRESS", "True"), TORCHBOLT_STRICT="0")
    assert quiet.stdout == f"{[[1.0, 1.0]] * 4} True\n" and "ValueError: nothing here" in quiet.stderr, quiet.stderr
    for loud in ("None", "False"):
        assert "BackendCompilerFailed" in run(program.replace("SUPPRESS", loud), TORCHBOLT_STRICT="0").stderr


def test_the_environment_gives_defaults():
    program = "from torchbolt import config; print(config.disable, config.suppress_errors, config.verbose)"
    done = run(program, TORCH_COMPILE_DISABLE="1", TORCHDYNAMO_SUPPRESS_ERRORS="0", TORCHDYNAMO_VERBOSE="1")
    assert done.stdout.split() == ["True", "False", "True"], done.stderr


def test_force_disable_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHBOLT_CACHE_DIR", str(tmp_path / "cache"))
    with config.patch(force_disable_caches=True):
        torchbolt.compile(lambda x: torch.sin(x) * 1.234567)(torch.ones(3))
    assert not any(f.is_file() for f in tmp_path.rglob("*"))


def test_a_setting_without_effect_changes_nothing(caplog):
    config.capture_scalar_outputs = True
    config.dynamic_shapes = False
    sizes(torchbolt.compile(double, dynamic=False), 2)
    assert not caplog.records


def test_a_mark_may_be_ignored():
    x = torch.ones(4, 3)
    torchbolt.mark_dynamic(x, 0, hint_override=9, specialize_on=[lambda n: n == 4])
    compiled = torchbolt.compile(lambda x: x.view(2, 2, 3) * 2)
    with config.patch(allow_ignore_mark_dynamic=True):
        assert torch.equal(compiled(x), x.view(2, 2, 3) * 2)
    torchbolt.reset()
    with pytest.raises(torchbolt.exc.ConstraintViolationError):
        compiled(x)


def test_torchs_names_of_the_exceptions():
    assert exc.Unsupported is torchbolt.GraphBreak and issubclass(exc.RecompileError, exc.TorchDynamoException)
    with pytest.raises(exc.Unsupported):
        torchbolt.compile(lambda x: x + time.clock_gettime(0), fullgraph=True)(torch.ones(1))
    with pytest.raises(exc.InvalidBackend, match="Did you mean 'eager'"):
        torchbolt.compile(double, backend="eagr")


@pytest.mark.parametrize(
    "settings, regions",
    [
        ({}, 2),
        ({"assume_static_by_default": False}, 1),
        ({"automatic_dynamic_shapes": False}, 4),
        ({"dynamic_shapes": False}, 4),
    ],
)
def test_when_sizes_become_symbols(settings, regions):
    compiled = torchbolt.compile(double)  # what counts are the settings when a call is recorded
    with config.patch(**settings):
        for n in range(2, 6):
            assert torch.equal(compiled(torch.ones(n)), torch.ones(n) * 2)
    assert torchbolt.stats()["regions"] == regions


TORCHS_EXCEPTIONS = """
import pickle, time, torch, torchbolt
early = torchbolt.GraphBreak("raised before torch._dynamo is loaded")
from torch._dynamo import exc  # the user's own import
def ends(x): return x + time.clock_gettime(0)
def failing(gm, inputs): raise ValueError("nothing here")
def twice(**settings):
    with torchbolt.config.patch(**settings):
        compiled = torchbolt.compile(lambda x: x + 1, dynamic=False, fullgraph=True)
        compiled(torch.ones(2)), compiled(torch.ones(3))
rows = [
    (lambda: torchbolt.compile(ends, fullgraph=True)(torch.ones(2)), exc.Unsupported, torchbolt.GraphBreak),
    (lambda: torchbolt.compile(ends, backend="none"), exc.InvalidBackend, torchbolt.exc.InvalidBackend),
    (lambda: torchbolt.compile(ends, backend=failing)(torch.ones(2)), exc.BackendCompilerFailed, None),
    (lambda: twice(error_on_recompile=True), exc.RecompileError, torchbolt.exc.RecompileError),
    (lambda: twice(recompile_limit=1), exc.FailOnRecompileLimitHit, torchbolt.exc.FailOnRecompileLimitHit),
    (lambda: torchbolt.compile(ends, mode="none"), exc.TorchDynamoException, torchbolt.exc.ArgumentError),
]
for raises, torchs, ours in rows:
    try: raises()
    except torchs as error:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) is (ours or torchbolt.exc.BackendCompilerFailed), error
        assert str(again) == str(error) == error.msg
    else: assert False, torchs
assert isinstance(early, exc.Unsupported) and not isinstance(early, exc.RecompileError)
"""


def test_except_clauses_may_name_torchs_exceptions():
    done = run("import torch; torch.set_grad_enabled(False)\n" + TORCHS_EXCEPTIONS)
    assert done.returncode == 0, done.stderr


TOLD_BY_THE_ENVIRONMENT = """
import torch, torchbolt
from torchbolt import artifacts, config
torchbolt.compile(lambda x: x.sin() + 1)(torch.ones(3))
print(artifacts.folder(), config.force_disable_caches)
"""


def test_variables_of_torchs(tmp_path):
    def told(**variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHBOLT_CACHE", "TORCHINDUCTOR"))}
        command = [sys.executable, "-c", TOLD_BY_THE_ENVIRONMENT]
        return subprocess.check_output(command, env=kept | variables, text=True, cwd=tmp_path).split()

    below = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    assert told(**below) == [str(tmp_path / "torchbolt"), "False"]
    assert told(**below, TORCHBOLT_CACHE_DIR=str(tmp_path / "own")) == [str(tmp_path / "own"), "False"]
    assert not list(tmp_path.glob("torchbolt_debug"))
    assert told(**below, TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCH_COMPILE_DEBUG="1")[-1] == "True"
    assert told(**below, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")[-1] == "True"
    (page,) = tmp_path.glob("torchbolt_debug/run_*/report.html")
    assert "sin" in page.read_text()
