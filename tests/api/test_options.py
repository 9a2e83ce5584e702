# tests/api/test_options.py
"""Modes and options: known names, contradictions, and what they stand for."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import torchbolt


def double(x):
    return x * 2


def test_lists():
    assert {"max_autotune", "epilogue_fusion", "triton.cudagraphs"} <= set(torchbolt.list_options())
    modes = torchbolt.list_mode_options()
    assert set(modes.pop("lite")) <= set(torchbolt.list_options())
    assert modes == {
        "default": {},
        "reduce-overhead": {"triton.cudagraphs": True},
        "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
        "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
    }
    assert torchbolt.list_mode_options("reduce-overhead") == {"triton.cudagraphs": True}
    with pytest.raises(ValueError, match="Did you mean 'max-autotune'"):
        torchbolt.list_mode_options("max-autotun")


def test_every_option_has_an_effect_or_a_reason():
    for name, text in torchbolt.describe_options().items():
        assert not text.startswith("accepted") or text.startswith("accepted: "), name


@pytest.mark.parametrize("mode", torchbolt.list_mode_options())
def test_every_mode_and_its_own_options(mode):
    compiled = torchbolt.compile(double, mode=mode, options=torchbolt.list_mode_options(mode))
    with torch.no_grad():
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_a_contradiction():
    with pytest.raises(ValueError, match="mode 'max-autotune' sets 'max_autotune' to True, options to False"):
        torchbolt.compile(double, mode="max-autotune", options={"max_autotune": False})


def test_options_of_torchs_without_effect():
    given = {"size_asserts": False, "cpp.threads": 1, "cpp.simdlen": 8, "debug": True, "triton.max_tiles": None}
    assert torchbolt.compile(double, options=given)(torch.ones(2)).tolist() == [2, 2]
    assert all(torchbolt.describe_options()[name].startswith("accepted: ") for name in given)


TORCHS_OPTIONS = """
import torch, torch._inductor, torchbolt  # the user's own import
torchs = set(torch._inductor.list_options()) - {"TYPE_CHECKING"}
missing = torchs - set(torchbolt.list_options())
assert not missing or not torch.__version__.startswith("2.13"), sorted(missing)
config = torch._inductor.config.get_config_copy()
for name in torchs & set(torchbolt.list_options()):  # every value that is torch's own
    torchbolt.compile(len, options={name: config[name]})
assert torchbolt.list_mode_options() == torch._inductor.list_mode_options()
"""


def test_torchs_names_are_known():
    done = subprocess.run([sys.executable, "-c", TORCHS_OPTIONS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("loop_ordering_after_fusion", True, "what is fused"),
        ("benchmark_combo_kernel", True, "on GPUs"),
        ("cuda.compile_opt_level", "-O3", "on GPUs"),
        ("max_autotune_gemm_search_space", "EXHAUSTIVE", "max_autotune measures"),
        ("cpp.cxx", (None, "g++"), "without a C++ compiler"),
        ("use_fast_math", True, "the same in every run"),
        ("post_grad_custom_post_pass", print, "no FX graph"),
        ("use_aoti", True, "no C++ library"),
        ("reorder_for_peak_memory", 0, "memory is planned"),
    ],
)
def test_an_option_without_effect_says_why(name, value, reason):
    assert torchbolt.compile(double, options={name: value})(torch.ones(2)).tolist() == [2, 2]
    assert torchbolt.describe_options()[name].startswith("accepted: ") and reason in torchbolt.describe_options()[name]


def test_dashes_are_underscores(caplog):
    given = {"max-autotune": True, "recompile-limit": 1}
    torchbolt.reset()
    compiled = torchbolt.compile(double, options=given)
    with torch.no_grad():
        compiled(torch.ones(2)), compiled(torch.ones(3))
    assert "compiled 1 times" in caplog.text
    with pytest.raises(ValueError, match="option 'loop-ordering-after-fushion'. Did you mean 'loop_ordering_after_f"):
        torchbolt.compile(double, options={"loop-ordering-after-fushion": True})


def test_wrong_names_and_types():
    with pytest.raises(ValueError, match="Did you mean 'epilogue_fusion'"):
        torchbolt.compile(double, options={"epilog_fusion": True})
    with pytest.raises(TypeError, match="'max_autotune' must be bool, not str"):
        torchbolt.compile(double, options={"max_autotune": "yes"})
    with pytest.raises(TypeError, match="'recompile_limit' must be int, not bool"):
        torchbolt.compile(double, options={"recompile_limit": True})
    with pytest.raises(TypeError, match="name must be a text"):
        torchbolt.compile(double, name=3)


def test_options_with_an_effect(caplog):
    torchbolt.reset()
    with torch.no_grad():
        compiled = torchbolt.compile(double, options={"recompile_limit": 1}, name="scale")
        compiled(torch.ones(2)), compiled(torch.ones(3))
    assert "scale was compiled 1 times" in caplog.text
    torchbolt.reset()
    with torch.no_grad():
        compiled = torchbolt.compile(double, options={"background": True})
        compiled(torch.ones(2)), torchbolt.wait()
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_trace_of_each_region(tmp_path, dynamic):
    def fn(x):
        y = torch.relu(x + 1)
        torchbolt.graph_break()
        return y * 2

    compiled = torchbolt.compile(fn, dynamic=dynamic, options={"trace.enabled": True, "trace.debug_dir": str(tmp_path)})
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 4.0))
    (run,) = (tmp_path / "torchbolt_debug").iterdir()
    regions = sorted(run.iterdir())
    assert len(regions) == 2 and all(region.name.endswith("fn") for region in regions)
    for region, recorded, computed in zip(regions, ("aten::relu", "aten::mul"), ("relu", "mul"), strict=True):
        texts = {file.name: file.read_text() for file in region.iterdir()}
        assert sorted(texts) == [
            "0_guards.txt",
            "1_recorded.txt",
            "2_graph.txt",
            "3_optimized_graph.txt",
            "4_plan.txt",
            "5_report.txt",
        ]
        assert recorded in texts["1_recorded.txt"] and computed in texts["2_graph.txt"]
        assert computed in texts["3_optimized_graph.txt"] and "run:" in texts["4_plan.txt"]
        assert "codegen" in texts["5_report.txt"] and "Float[" in texts["0_guards.txt"]


def test_a_trace_of_what_is_left_to_eager(tmp_path):
    x = torch.ones(3, requires_grad=True)
    options = {"trace.enabled": True, "trace.debug_dir": str(tmp_path)}
    quantile = torchbolt.compile(lambda x: x.quantile(0.5), options=options)  # looks at its data
    quantile(x).backward()
    (graph,) = tmp_path.glob("torchbolt_debug/*/*/3_optimized_graph.txt")
    assert "aten::quantile, by eager" in graph.read_text()


def test_a_trace_of_both_directions(tmp_path):
    x = torch.ones(3, requires_grad=True)
    options = {"trace.enabled": True, "trace.debug_dir": str(tmp_path)}
    torchbolt.compile(lambda x: x.sin() * 2, options=options)(x).sum().backward()
    files = {path.name: path.read_text() for path in tmp_path.glob("torchbolt_debug/*/*/*")}
    assert "backward:" in files["1_joint.txt"]
    assert "sin" in files["2_forward_graph.txt"] and "cos" in files["2_backward_graph.txt"]
    assert "# backward" in files["4_plan.txt"]


def test_a_trace_that_cannot_be_written(tmp_path, capfd):
    (tmp_path / "torchbolt_debug").write_text("a file")
    options = {"trace.enabled": True, "trace.debug_dir": str(tmp_path)}
    with torch.no_grad():
        assert torchbolt.compile(lambda x: x * 2, options=options)(torch.ones(2)).tolist() == [2, 2]
    assert "cannot write the trace" in capfd.readouterr().err


def test_graphs_are_refused_with_a_reason():
    with torch.no_grad():
        seen = torchbolt.explain(double, mode="reduce-overhead")(torch.ones(2))
        assert seen.no_graphs == ["all of it is on cpu"] and "No CUDA graph: all of it is on cpu" in str(seen)
        assert torchbolt.explain(double)(torch.ones(2)).no_graphs == []


def test_graphs_are_refused_where_eagers_operators_run():
    seen = torchbolt.explain(double, mode="reduce-overhead", backend="eager")(torch.ones(2))
    assert len(seen.no_graphs) == 1 and seen.no_graphs == seen.eager_regions


def test_a_backend_of_the_users_is_given_the_option():
    met = []

    def backend(gm, example_inputs, options=None):
        met.append(options)
        return gm.forward

    compiled = torchbolt.compile(double, backend=backend, options={"triton.cudagraphs": True})
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert met == [{"triton.cudagraphs": True}]
