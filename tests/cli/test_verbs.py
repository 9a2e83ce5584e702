# tests/cli/test_verbs.py
"""The command line: what each verb prints, finds and refuses, and its exit code."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import types

import pytest
import torch

import torchbolt
from torchbolt import _C, artifacts, plans
from torchbolt.cli import benchmark, compare, main, target

MODEL = """
import os
import signal

import torch
import torchbolt


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)

    def forward(self, x):
        x = self.linear(x).relu()
        torchbolt.graph_break("here")
        return self.norm(x) * 2


def model():
    torch.manual_seed(0)
    return Net().eval()


def fn(x, scale=2.0):
    return torch.exp(x.sin() * scale)


def noisy(x):
    return x + 0.5


def loud(x):
    print("heard")
    return x + 1


def nothing():
    return 3


def crashing(x):
    if torchbolt.is_compiling():
        os.kill(os.getpid(), signal.SIGSEGV)
    return x + 1


def unmade():
    raise KeyError("no weights")


class Step:
    def __init__(self):
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)

    def __call__(self, x):
        self.optimizer.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss


def step():
    torch.manual_seed(0)
    return Step().__call__, (torch.ones(4, 16),)


inputs = (torch.ones(4, 16),)
"""


WIDE = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 64)).eval()
inputs = (torch.randn(512, 64),)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "needs.py").write_text("import absent_module")
    (tmp_path / "unfinished.py").write_text("def fn(:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHBOLT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    torchbolt.reset()
    yield tmp_path
    for name in set(sys.modules) & {"net"} - before:
        del sys.modules[name]


def said(capsys, *arguments):
    """(exit code, standard output, standard error)."""
    code = main.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def facts(capsys, *arguments):
    code, out, err = said(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_help_and_version(capsys):
    for arguments in (["--help"], *([verb, "--help"] for verb in main.VERBS)):
        with pytest.raises(SystemExit) as end:
            main.main(arguments)
        out = capsys.readouterr().out
        assert end.value.code == 0 and "usage: torchbolt" in out
        assert all(len(line) < 130 for line in out.splitlines()), out
    with pytest.raises(SystemExit):
        main.main(["--version"])
    assert capsys.readouterr().out == f"torchbolt {torchbolt.__version__} for torch {torch.__version__}, Python " + (
        f"{sys.version_info[0]}.{sys.version_info[1]}\n"
    )
    code, out, err = said(capsys)
    assert code == 2 and not out and "benchmark" in err
    assert said(capsys, "run", "--help")[:1] == (0,)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["benhmark", "net.py"], "no verb 'benhmark', and no file of that name. Did you mean 'benchmark'?"),
        (["explain", "absent.py"], "no file 'absent.py'"),
        (["explain", "absent:fn"], "no module 'absent' here"),
        (["explain", "net.py:modle"], "there is no 'modle' in net; there are"),
        (["explain", "net.py:fn", "--input", "4by16"], "'4by16' is no input: --input takes [NAME=]SIZES"),
        (["explain", "net.py:inputs"], "net.py:inputs is a tuple, nothing that can be called"),
        (["explain", "net.py:fn", "--input", "y=3"], "an unexpected keyword argument 'y'. Give its arguments with"),
        (["explain", "net.py", "--option", "max_autotune"], "it takes NAME=VALUE"),
        (["explain", "net.py", "--option", "max=1"], "there is no such option"),
        (["explain", "net.py", "--dtype", "float31"], "torch has no such dtype"),
        (["explain", "net.py", "--mode", "fast"], "unknown mode 'fast'. Known: default, "),
        (["benchmark", "net.py", "--backend", "fast"], "unknown backend 'fast'. torchbolt.list_backends(None) lists"),
        (["explain", "net.py:fn", "--input", "3"], "net.py:fn fails: AttributeError: 'int' object has no attribute"),
        (["explain", "net.py:unmade"], "net.py:unmade cannot be loaded: KeyError: 'no weights' ("),
        (["explain", "unfinished.py"], "unfinished.py cannot be loaded: SyntaxError: invalid syntax"),
        (["explain", "needs.py"], "No module named 'absent_module' ("),
        (["explain", "net"], "Did you mean 'net.py'?"),
        (["explain", "net.py", "--device", "cqu"], "--device cqu: Expected one of cpu, cuda"),
        (["explain", "net.py:step"], "net.py:step needs gradients (element 0 of tensors does not require grad and"),
        (["explain", "net.py", "--html", "net.py/report.html"], "cannot write net.py/report.html: "),
        (["run", "absent.py"], "run: no file 'absent.py'; usage: torchbolt run ["),
        (["run", "--fast", "net.py"], "run: no option '--fast'; usage: "),
        (["run", "."], "run: '.' is a folder without a __main__.py"),
        (["run", "-m", "absent.module"], "run -m: no module 'absent.module' here or among"),
        (["-m"], "run -m takes a MODULE; usage: "),
        (["cache", "export"], "cache export takes a FILE"),
        (["cache", "clear", "x"], "cache clear takes no FILE"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments, message):
    code, out, err = said(capsys, *arguments)
    assert code == 2 and not out and len(err.splitlines()) == 1
    assert err.startswith("torchbolt: ") and message in err


def test_numbers_are_larger_than_nothing(capsys):
    for arguments in (["--threads", "-1"], ["--seconds", "0"], ["--seconds", "inf"]):
        with pytest.raises(SystemExit) as end:
            main.main(["benchmark", "net.py", *arguments])
        assert end.value.code == 2 and "is not larger than 0" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough():
    command = [sys.executable, "-m", "torchbolt", "explain", "net.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as verb:
        verb.stdout.close()
        assert verb.stderr.read() == b"" and verb.wait() == 128 + signal.SIGPIPE


def test_an_unknown_name(capsys):
    code, _, err = said(capsys, "explain", "berd")
    assert code == 2 and "'berd' is no module:function, no file, and no configuration of transformers or timm" in err


def resolved(*arguments):
    return target.of(main.parser().parse_args(["explain", *arguments]))


def test_targets():
    model = resolved("net.py")
    assert type(model.fn).__name__ == "Net" and model.args[0].shape == (4, 16) and not model.fn.training
    assert resolved("net:Net.forward", "--input", "3", "--input", "4").args == (3, 4)
    given = resolved("net:fn", "--input", "2x3:float64", "--input", "scale=1.5")
    assert given.kwargs["x"].dtype == torch.float64 and given.kwargs["scale"] == 1.5 and not given.args
    ids = resolved("net:fn", "--input", "x=2x3:int64:5..9").kwargs["x"]
    assert ids.dtype == torch.int64 and 5 <= int(ids.min()) and int(ids.max()) < 9
    assert resolved("net:nothing").fn.__name__ == "nothing"
    moved = resolved("net.py", "--dtype", "bfloat16", "--mode", "max-autotune", "--option", "recompile_limit=3")
    assert moved.args[0].dtype == moved.fn.linear.weight.dtype == torch.bfloat16
    assert moved.options == {"mode": "max-autotune", "options": {"recompile_limit": 3}}


@pytest.mark.parametrize("name", ["distilbert", "GPT2LMHeadModel", "hf:vit", "bert-base-uncased"])
def test_names_of_transformers_are_small_models(name):
    pytest.importorskip("transformers")
    made = resolved(name)
    assert sum(p.numel() for p in made.fn.parameters()) < 2_000_000
    with torch.no_grad():
        assert made.fn(**made.kwargs)


def test_probe(capsys, monkeypatch):
    monkeypatch.setenv("TORCHBOLT_CACHE_KEY", "a secret that nobody may see")
    code, seen = facts(capsys, "probe")
    assert code == 0 and seen["torch"]["version"] == seen["torch"]["built_for"] == torch.__version__
    assert all(check["works"] for check in seen["checks"].values()) and len(seen["checks"]) >= 2
    assert seen["machine"]["code"].startswith(os.environ.get("TORCHBOLT_ISA", "").replace("native", ""))
    assert seen["devices"][0]["device"] == "cpu" and seen["cache"]["folder"] == os.environ["TORCHBOLT_CACHE_DIR"]
    code, out, _ = said(capsys, "probe", "--no-checks")
    assert code == 0 and "built for" in out and "secret" not in out


def test_probe_says_what_does_not_work(capsys, monkeypatch):
    monkeypatch.setattr(torchbolt.api, "compile", lambda fn: lambda x: x)
    code, seen = facts(capsys, "probe")
    assert code == 1 and not any(check["works"] for check in seen["checks"].values())


def test_benchmark(capsys):
    code, seen = facts(capsys, "benchmark", "net.py", "--seconds", "0.02", "--threads", "1")
    assert seen["kernels"]["after"] < seen["kernels"]["before_fusion"] and seen["kernels"]["breaks"] == 1
    assert seen["error"]["same"] and seen["steady"]["recordings"] == 0
    assert seen["speed"] == pytest.approx(seen["steady"]["eager"]["ms"] / seen["steady"]["torchbolt"]["ms"])
    holds = {name: check["holds"] for name, check in seen["checks"].items()}
    assert holds["same results"] and holds["fewer kernels"] and code == (0 if all(holds.values()) else 1)


def test_memory_of_a_call_counts_what_is_kept_for_it(capsys, place):
    """Eager needs what lies between two products, at the least, and ours what it keeps, at the least."""
    (place / "wide.py").write_text(WIDE)
    _, seen = facts(capsys, "benchmark", "wide.py", "--seconds", "0.02", "--threads", "1")
    memory = seen["memory_mb"]
    assert 14 < memory["eager"] < 60 and 6 < memory["torchbolt"] < 60 and memory["kept"] <= memory["torchbolt"] + 1
    _, out, _ = said(capsys, "benchmark", "wide.py", "--seconds", "0.02", "--threads", "1")
    assert re.search(r"peak memory +eager [\d.]+ MB, torchbolt [\d.]+ MB \(kept between calls: ", out), out


def test_a_training_step_is_compared_from_the_same_weights(capsys):
    arguments = ["net.py:step", "--gradients", "--threads", "1"]
    _, seen = facts(capsys, "benchmark", *arguments, "--seconds", "0.02")
    assert seen["error"]["same"] and seen["error"]["difference"] < 1e-4
    code, seen = facts(capsys, "bisect", *arguments)
    assert code == 0 and not seen["found"]


@pytest.mark.parametrize("ours, of_eager, holds", [(0.4, 0.1, True), (0.6, 0.1, False), (0.6, 0.4, True)])
def test_a_state_is_steady_unless_times_spread_more_than_eagers(ours, of_eager, holds):
    row = {
        name: {"ms": 1.0, "ms_low": 1.0, "ms_high": 1.0 + by} for name, by in (("torchbolt", ours), ("eager", of_eager))
    }
    kernels = {"after": 1, "library_calls": 0, "aten_calls": 0, "operators": 2, "before_fusion": 2, "eager_regions": []}
    error = {"same": True, "why": None, "error": 0.0, "error_eager": 0.0}
    facts = {"kernels": kernels, "steady": {**row, "recordings": 0}, "error": error}
    assert benchmark._checks(facts)["steady state"]["holds"] == holds


def test_a_benchmark_that_gains_nothing_says_so(capsys):
    code, out, _ = said(capsys, "benchmark", "net.py:noisy", "--seconds", "0.02", "--threads", "1")
    assert code == 1 and "fewer kernels  NO: 1 launch for 1 operator" in out


def test_a_target_that_fails(capsys):
    code, _, err = said(capsys, "benchmark", "net.py", "--input", "3x5")
    assert code == 2 and "net.py fails: RuntimeError: " in err


def test_the_place_of_a_failure_is_the_targets(capsys, place):
    line = MODEL.splitlines().index("    return torch.exp(x.sin() * scale)") + 1
    for verb in ("explain", "benchmark", "diagnose", "estimate"):
        code, _, err = said(capsys, verb, "net.py:fn", "--input", "3")
        assert code == 2 and err.endswith(f"({place / 'net.py'}:{line}: return torch.exp(x.sin() * scale))\n"), err


def test_what_a_target_prints_is_no_part_of_the_answer(capfd):
    for verb in ("explain", "diagnose"):
        assert main.main([verb, "net.py:loud", "--json"]) == 0
        out, err = capfd.readouterr()
        assert json.loads(out) and "heard" not in out and 0 < err.count("heard") < 10  # not those that are measured


def test_explain(capsys):
    code, seen = facts(capsys, "explain", "net.py")
    assert code == 0 and seen["graph_count"] == 2 and seen["break_reasons"][0]["line"] == 16
    assert "kernel @" in seen["plans"][0]
    assert "Graph Break Count: 1" in said(capsys, "explain", "net.py")[1]


def test_without_a_target_it_is_a_demo(capsys):
    code, seen = facts(capsys, "diagnose", "--seconds", "0.02")
    assert code == 0 and seen["target"].startswith("demo: ") and seen["breaks"] == [] and seen["regions"] == 1
    assert main.parser().parse_args(["benchmark"]).target == "demo"
    with pytest.raises(SystemExit):
        main.parser().parse_args(["explain"])


def test_diagnose_ranks(capsys):
    code, seen = facts(capsys, "diagnose", "net.py", "--seconds", "0.02")
    (row,) = seen["breaks"]
    assert code == 0 and (row["rank"], row["count"], row["line"]) == (1, 1, 16)
    assert row["hint"] and 0 < row["about_ms"] <= seen["outside_kernels_ms"] < seen["torchbolt_ms"]
    assert "No region ends" in said(capsys, "diagnose", "net.py:noisy", "--seconds", "0.01")[1]


def test_estimate(capsys):
    code, seen = facts(capsys, "estimate", "net.py", "--seconds", "0.02", "--threads", "1", "--compare")
    assert code == 0 and seen["breaks"] == 1 and seen["operators"] >= 4 and seen["steps"] == 2
    assert 0 < seen["bytes"] < seen["bytes_unfused"] and 0 <= seen["library_share"] <= 1
    assert seen["speed"] == pytest.approx(seen["eager_us"] / seen["expected_us"])
    assert 0.1 < seen["expected_us"] / seen["came_true"]["us"] < 10
    assert "expected" in said(capsys, "estimate", "net.py:fn", "--seconds", "0.01")[1]
    for trained in ("net.py", "net.py:step"):  # regions with two halves, and both in one
        code, seen = facts(capsys, "estimate", trained, "--gradients", "--seconds", "0.02", "--threads", "1")
        assert code == 0 and seen["steps"] > 4 and seen["bytes"]


STEP = """
import torch
net = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    def one(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return one, torch.ones(2, 8)
"""


def test_the_estimate_of_a_training_step_has_the_regions_of_the_compiled_one(capsys, place):
    (place / "trained.py").write_text(STEP)
    given = ("trained.py:step", "--gradients", "--threads", "1")
    code, seen = facts(capsys, "estimate", *given, "--seconds", "0.02")
    assert code == 0 and seen["breaks"] == 0 and seen["bytes"] < seen["bytes_unfused"]
    _, compiled = facts(capsys, "explain", *given)
    assert compiled["graph_break_count"] == 0 and seen["steps"] == sum(
        len([s for s in plans.parse(plan).steps if not s.once]) for plan in compiled["plans"]
    )


def test_code_that_waits_is_made_when_it_is_run():
    def fn(x, n):
        return (x.softmax(-1) * n).sum(0)

    compiled, x = torchbolt.compile(fn), torch.randn(4, 8)
    _C._let_code_wait(True)
    try:
        first = compiled(x, 2)
    finally:
        _C._let_code_wait(False)
    assert torch.equal(first, fn(x, 2))
    for size in (4, 4, 5, 6):
        x = torch.randn(size, 8)
        torch.testing.assert_close(compiled(x, 3), fn(x, 3))


def test_an_operator_that_a_plan_leaves_takes_what_it_took():
    from torchbolt.cli import estimate

    limits, took = {"bytes": 1e9, "work": 1e9}, {"aten::topk": 40.0, "aten::relu": 30.0}
    left = types.SimpleNamespace(kind="extern", name="aten::topk", bytes=2000, work=None)
    ours = types.SimpleNamespace(kind="kernel", name="aten::relu", bytes=2000, work=500)
    assert estimate._expected_us(left, limits, took) == 40.0
    overload = types.SimpleNamespace(kind="extern", name="aten::topk.values", bytes=2000, work=None)
    assert estimate._expected_us(overload, limits, took) == 40.0
    assert estimate._expected_us(left, limits, {}) == estimate._expected_us(ours, limits, took) == 2.0


def test_the_estimates_page(capsys, place):
    arguments = ("estimate", "net.py", "--seconds", "0.01", "--threads", "1", "--html", "pages/estimate.html")
    code, seen = facts(capsys, *arguments)
    page = (place / "pages/estimate.html").read_text()
    assert code == 0 and seen["html"] == str((place / "pages/estimate.html").resolve())
    assert f"{seen['speed']:.2f}x eager" in page and "came true" not in page and "Once in a call" in page
    assert "<script" not in page and "://" not in page  # it needs nothing else
    _, seen = facts(capsys, *arguments, "--compare")
    assert f"{seen['came_true']['off_by']:+.0%}" in (place / "pages/estimate.html").read_text()


def test_a_page_takes_names_as_text():
    from torchbolt.cli import estimate_page

    shares = dict.fromkeys(("library_share", "launch_share", "bytes", "bytes_unfused", "steps", "operators"), 0)
    shown = {"target": "<b>&", "eager_us": 1.0, "expected_us": 1.0, "speed": 1.0, "breaks": 0}
    page = estimate_page.page(shares | shown | {"eager_regions": ["<i> is eager's"]})
    assert "<b>" not in page and "<i>" not in page and "Nowhere: the whole call is one program." in page


def filled_cache():
    """Where a process finds its cache it finds it for good, so another one fills the test's."""
    subprocess.run([sys.executable, "-m", "torchbolt", "explain", "net.py"], capture_output=True, check=True)


def test_cache(capsys, place, monkeypatch):
    filled_cache()
    code, seen = facts(capsys, "cache")
    assert code == 0 and seen["folder"] == str(place / "cache") and seen["entries"] > 0
    assert len(facts(capsys, "cache", "list")[1]["entries"]) == seen["entries"]
    code, _, err = said(capsys, "cache", "export", "all.bolts")
    assert code == 2 and "set TORCHBOLT_CACHE_KEY" in err
    monkeypatch.setenv("TORCHBOLT_CACHE_KEY", "0123456789abcdef")
    assert facts(capsys, "cache", "export", "all.bolts")[1]["entries"] == seen["entries"]
    assert facts(capsys, "cache", "clear")[1] == {"removed": seen["entries"]}
    assert facts(capsys, "cache")[1]["entries"] == 0
    assert facts(capsys, "cache", "import", "all.bolts")[1]["imported"] == seen["entries"]
    assert facts(capsys, "cache")[1] == seen
    assert all((place / "cache" / entry.name).stat().st_mode & 0o777 == 0o600 for entry in artifacts.entries())


def test_artifacts_of_others_are_refused(monkeypatch):
    filled_cache()
    monkeypatch.setenv("TORCHBOLT_CACHE_KEY", "0123456789abcdef")
    packed = artifacts.pack(artifacts.entries())
    for wrong, why in (
        (packed[:-1] + bytes([packed[-1] ^ 1]), "signature does not hold"),
        (packed[:40], "signature does not hold"),
        (b"no artifact", "no artifact of torchbolt's"),
    ):
        with pytest.raises(artifacts.ArtifactError, match=why):
            artifacts.unpack(wrong)
        with pytest.warns(RuntimeWarning, match=why):
            assert torchbolt.load_cache_artifacts(wrong) is None
    monkeypatch.setenv("TORCHBOLT_CACHE_KEY", "another key, as long")
    with pytest.raises(artifacts.ArtifactError, match="another TORCHBOLT_CACHE_KEY, or changed"):
        artifacts.unpack(packed)
    monkeypatch.setenv("TORCHBOLT_CACHE_KEY", "short")
    with pytest.raises(artifacts.ArtifactError, match="shorter than 16"):
        artifacts.unpack(packed)
    evil = b'{"entries": [{"name": "../outside.bolt", "bytes": 0}]}'
    body = len(evil).to_bytes(8, "little") + evil
    monkeypatch.setenv("TORCHBOLT_CACHE_KEY", "0123456789abcdef")
    with pytest.raises(artifacts.ArtifactError, match="an entry called"):
        artifacts.unpack(artifacts._MAGIC + artifacts._signature(body, artifacts.key()) + body)


ONE_PROCESS = """
import sys, pathlib, torch, torchbolt
file = pathlib.Path(sys.argv[1])
if file.exists():
    print(torchbolt.load_cache_artifacts(file.read_bytes()).entries)
with torch.no_grad():
    torchbolt.compile(lambda x: (x.sin() * 3).exp())(torch.ones(7))
print(torchbolt.stats()["cache_hits"])
if not file.exists():
    saved, info = torchbolt.save_cache_artifacts()
    file.write_bytes(saved)
    print(info.entries)
"""


def test_artifacts_go_from_one_machine_to_another(place):
    def process(folder):
        environment = os.environ | {"TORCHBOLT_CACHE_DIR": str(place / folder), "TORCHBOLT_CACHE_KEY": "k" * 32}
        command = [sys.executable, "-c", ONE_PROCESS, str(place / "artifact")]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.split()

    assert process("one") == ["0", "1"]
    assert process("two") == ["1", "1"]


def test_bisect_finds_the_operator(capsys, place):
    assert facts(capsys, "bisect", "net.py:fn")[1]["found"] is False
    code, seen = facts(capsys, "bisect", "net.py:fn", "--tolerance", "0", "--input", "64x64")
    assert code == 1 and seen["stage"] == "compiling" and seen["outcome"] == "differs"
    assert len(seen["operators"]) == 1 and seen["operators"][0].split(".")[1] in ("sin", "exp")
    assert any("net.py" in line for line in seen["lines"])
    assert len(seen["kernels"]) == 1 and seen["repro"] == str(place / "repro.py")
    (place / "net.py").unlink()
    done = subprocess.run([sys.executable, "repro.py"], capture_output=True, text=True)
    assert done.returncode == 1 and "largest difference from eager: " in done.stdout, done.stderr


def test_bisect_in_processes_of_their_own(capsys):
    code, out, _ = said(capsys, "bisect", "net.py:noisy", "--isolate", "--tolerance", "-1")
    assert code == 1 and "recording" in out and pathlib.Path("repro.py").read_text().count("net.py:noisy") == 2


def test_bisect_survives_a_crash(capsys):
    code, seen = facts(capsys, "bisect", "net.py:crashing")
    assert code == 1 and (seen["outcome"], seen["why"], seen["stage"]) == ("crashes", "SIGSEGV", "recording")


def test_what_counts_as_the_same():
    ones = torch.ones(3)
    assert compare.other_form({"a": ones}, {"a": ones}) == ""
    assert "other parts" in compare.other_form((ones,), (ones, ones))
    assert "float64" in compare.other_form((ones,), (ones.double(),))
    assert "other numbers" in compare.other_form(ones.int(), ones.int() + 1)
    assert "is 3, in eager 2" in compare.other_form([2], [3])
    assert compare.distance(ones, ones + 0.25) == 0.25
    assert compare.distance(ones * float("nan"), ones * float("nan")) == 0.0
    assert compare.distance(ones, ones * float("nan")) == float("inf")
    asked = target.Target("f", lambda x: x.exp(), (ones,))
    assert compare.verdict(asked, ones.exp(), ones.exp())["same"]
    assert not compare.verdict(asked, ones.exp(), ones.exp() + 1e-4)["same"]


SCRIPT = """
import sys
from torchbolt.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""


def test_tracebacks_begin_with_the_program(place):
    """Also from the script that pip installs."""
    (place / "torchbolt").write_text(SCRIPT)
    (place / "bad.py").write_text("def f():\n    raise ValueError(2)\nf()\n")
    ours, plain = (
        subprocess.run([sys.executable, *way, "bad.py"], capture_output=True, text=True)
        for way in (["torchbolt", "run"], [])
    )
    assert (ours.stderr, ours.returncode) == (plain.stderr, 1)


def test_run_is_a_verb_and_the_way_without_one(place):
    (place / "train.py").write_text(
        "import sys, torch\nprint(torch.compile.__module__, sys.argv)\nraise SystemExit(3)\n"
    )
    for way in (["run", "train.py"], ["train.py"]):
        done = subprocess.run([sys.executable, "-m", "torchbolt", *way, "--steps"], capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("torchbolt.api ['train.py', '--steps']\n", 3), done.stderr
