# tests/api/test_controls.py
"""disable, graph_break, is_compiling, set_stance, and torch's own marks for the same."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchbolt

pytestmark = pytest.mark.usefixtures("fresh")


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


class Headed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torchbolt.disable(torchbolt.compile(torch.nn.Linear(4, 2)), reason="of its own")

    def forward(self, x):
        return self.head(self.body(x)).relu()


def test_a_disabled_module_is_a_module():
    model, x = Headed(), torch.randn(3, 4)
    names = ["body.weight", "body.bias", "head.weight", "head.bias"]
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()] == names
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torchbolt.reset()
        stats = compiled_twice(each.double(), x.double())
        assert stats["break_reasons"] == {"calls Linear.__call__, which is disabled: of its own": 1}
        assert stats["regions"] == 2 and isinstance(each.head, torch.nn.Linear)
    torchbolt.reset()
    torchbolt.compile(model.head)(x.double())
    assert torchbolt.stats()["regions"] == 0


def test_a_disabled_class_is_the_class():
    @torchbolt.disable
    class Adding:
        def __init__(self, n):
            assert not torchbolt.is_compiling()
            self.n = n

        def __call__(self, x):
            assert not torchbolt.is_compiling()
            return x + self.n

    @torchbolt.disable
    class Own(torch.nn.Linear):
        def forward(self, x):
            assert not torchbolt.is_compiling()
            return super().forward(x)

    own = Own(4, 4)
    assert isinstance(own, Own) and torch.nn.Module.__call__.__name__ == "_wrapped_call_impl"
    assert compiled_twice(lambda x: Adding(2)(x * 2) + own(x), torch.randn(2, 4))["eager_fallbacks"] == 0


def test_graph_break():
    def fn(x):
        y = x * 2
        torchbolt.graph_break()
        return y + 1

    stats = compiled_twice(fn, torch.randn(4))
    assert stats["break_reasons"] == {"graph_break() is called": 1} and stats["regions"] == 2
    with pytest.raises(torchbolt.GraphBreak, match="is called: look here"):
        torchbolt.compile(lambda x: torchbolt.graph_break("look here"), fullgraph=True)(torch.randn(4))


def test_a_way_that_only_fails_when_compiled_is_not_taken():
    effects = []

    def fn(x, mask=None, note=False):
        if note:
            effects.append(1)
        if mask is None and not torch.compiler.is_compiling():
            mask = x > 0
        return x.masked_fill(mask.logical_not(), 2.0)  # None has no logical_not

    x = torch.randn(4)
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(x), fn(x))
    assert torch.equal(compiled(x, x > 1), fn(x, x > 1))
    torchbolt.reset()
    with pytest.raises(AttributeError):  # what was done already is not done twice
        torchbolt.compile(fn)(x, note=True)
    assert effects == [1]


def test_a_way_that_only_fails_when_compiled_may_draw_and_write_what_was_there():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout, self.scale, self.seen = torch.nn.Dropout(0.5), 2.0, [1]

        def forward(self, x, mask=None):
            x = self.dropout(x) * torch.tensor([1.0, 2.0]).sum()
            self.scale = self.scale
            self.seen[0] = self.seen[0]
            self.note = 1
            del self.note
            if mask is None and not torch.compiler.is_compiling():
                mask = x > 0
            return x.masked_fill(mask.logical_not(), self.scale) + torch.rand(4)

    net, x = Net(), torch.randn(4)
    compiled = torchbolt.compile(net)
    for _ in range(3):
        torch.manual_seed(3)
        expected = net(x), torch.rand(2)
        torch.manual_seed(3)
        assert all(torch.equal(a, b) for a, b in zip((compiled(x), torch.rand(2)), expected, strict=True))


def test_an_error_behind_a_regions_end_says_nothing_of_compiling():
    asked = []

    def fn(x, width):
        compiling = torch.compiler.is_compiling()
        if not compiling and x.sum() > 1000:
            return x
        asked.append(compiling)
        return x.view(width, width)

    compiled, x = torchbolt.compile(fn), torch.zeros(4)
    for width in (2, 3, 2, 3, 2):
        if width == 3:
            with pytest.raises(RuntimeError, match="invalid for input of size"):
                compiled(x, width)
        else:
            asked.clear()
            assert torch.equal(compiled(x, width), x.view(2, 2)) and asked == [True]


def test_an_error_of_the_programs_own_stays_what_it_is():
    @torchbolt.compile
    def fn(x):
        if torch.compiler.is_compiling():
            x = x * 2
        if x.shape[0] == 3:
            raise ValueError("three")
        return x

    with pytest.raises(ValueError, match="three"):
        fn(torch.ones(3))
    assert torch.equal(fn(torch.ones(2)), torch.full((2,), 2.0))


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
    with torchbolt.set_stance("fail_on_recompile"), pytest.raises(torchbolt.exc.RecompileError, match="Nothing"):
        fn(small)
    fn(small)
    with torchbolt.set_stance("fail_on_recompile"):
        fn(small)
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


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.no_grad()(function)).result()


def test_a_stance_holds_in_all_threads_and_disable_in_one():
    fn, x = torchbolt.compile(lambda x: x * 2), torch.ones(2)

    def regions():
        assert fn(x).tolist() == [2, 2]
        return torchbolt.stats()["regions"]

    with torchbolt.set_stance("force_eager"):
        assert in_a_thread(regions) == 0
    assert torchbolt.disable(lambda: in_a_thread(regions))() == 1
    torchbolt.reset()
    in_a_thread(lambda: torchbolt.set_stance("force_eager"))
    assert regions() == 0
    torchbolt.set_stance("default")
    assert torchbolt.disable(regions)() == 0 and regions() == 1


def test_a_stance_is_used_again():
    fn, x = torchbolt.compile(lambda x: x * 2), torch.ones(2)
    eager = torchbolt.set_stance("force_eager")

    def regions_of_a_call():
        before = torchbolt.stats()["regions"]
        assert fn(x).tolist() == [2, 2]
        torchbolt.compile(lambda x: x * 3)(x)
        return torchbolt.stats()["regions"] - before

    assert regions_of_a_call() == 0  # it holds from when it is made
    for _ in range(2):
        with eager:
            assert regions_of_a_call() == 0
            with eager:
                assert regions_of_a_call() == 0
            assert regions_of_a_call() == 0
        assert regions_of_a_call() > 0
    assert eager(regions_of_a_call)() == 0 and regions_of_a_call() == 1


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_eager_then_compile(stance):
    model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    compiled, regions = torchbolt.compile(model), []
    with torchbolt.set_stance(stance, skip_guard_eval_unsafe=True):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
            regions.append(torchbolt.stats()["regions"])
    assert regions == [0, 1, 1]


def test_force_backend():
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    compiled = torchbolt.compile(model)
    for forced in (backend, "eager", None, backend):
        with torchbolt.set_stance(force_backend=forced):
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x))
        torch.testing.assert_close(compiled(x), model(x))
    assert len(seen) == 1 and torchbolt.stats()["regions"] == 3
    with pytest.raises(RuntimeError, match="force_eager"):
        torchbolt.set_stance("force_eager", force_backend="eager")


def test_torchs_stances():
    program = """
import torch, torchbolt
def regions(stance):
    torchbolt.reset()
    c, x, counts = torchbolt.compile(lambda x: x * 2), torch.ones(2), []
    c(x)
    torchbolt.reset()
    for around in map(torch.compiler.set_stance, (stance, "default")):  # each sets it when it is made
        with around:
            for _ in range(2):
                try: assert c(x).tolist() == [2, 2]
                except RuntimeError as error: counts.append(type(error).__name__)
                counts.append(torchbolt.stats()["regions"])
    return counts
with torch.no_grad():
    assert regions("force_eager") == regions("eager_on_recompile") == [0, 0, 1, 1], regions("force_eager")
    assert regions("eager_then_compile") == [0, 1, 1, 1], regions("eager_then_compile")
    assert regions("fail_on_recompile") == ["RecompileError", 0] * 2 + [1, 1], regions("fail_on_recompile")
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


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


TORCHS_MARKS = """
import time, torch, torchbolt, torch._dynamo  # the user's own import
from torch import compiler
seen = []
@compiler.assume_constant_result
def constant(): seen.append(1); return len(seen)
@compiler.allow_in_graph
def allowed(x): time.clock_gettime(0); return x * 2
@torch._dynamo.nonstrict_trace
def traced(x): time.clock_gettime(0); return x + 1
@torch._dynamo.forbid_in_graph
def forbidden(x): return x + 1
@torch._dynamo.error_on_graph_break(True)
def tight(x): time.clock_gettime(0); return x + 1
@torch._dynamo.error_on_graph_break(False)
def loose(x): time.clock_gettime(0); return x + 1
def within(x):
    with torch._dynamo.error_on_graph_break(True):
        return loose(x) * 2, time.clock_gettime(0)
torch._dynamo.disallow_in_graph(torch.sinh)
part = compiler.disable(torch.nn.Linear(2, 2))
rows = [
    (lambda x: x * constant(), True, [1, 1]),
    (lambda x: allowed(x) + traced(x), True, [4, 4]),
    (lambda x: torch.sinh(x * 0) + x, False, [1, 1]),
    (lambda x: part(x) * 0, False, [0, 0]),
    (lambda x: torch.sinh(x), True, torchbolt.GraphBreak),
    (lambda x: forbidden(x), False, AssertionError),
    (tight, False, torchbolt.GraphBreak),
    (loose, False, [2, 2]),
    (within, False, torchbolt.GraphBreak),
]
x = torch.ones(2)
for fn, fullgraph, expected in rows:
    compiled = torchbolt.compile(fn, fullgraph=fullgraph)
    for _ in range(4):
        try:
            assert compiled(x).tolist() == expected
        except (torchbolt.GraphBreak, AssertionError) as error:
            assert type(error) is expected, (error, expected)
with torch._dynamo.error_on_graph_break(True):
    try:
        torchbolt.compile(lambda x: (time.clock_gettime(0), x + 1))(x)
    except torchbolt.GraphBreak as error:
        print("around:", error)
"""


def test_torchs_marks_kept_inside_of_it():
    done = run("-c", "import torch; torch.set_grad_enabled(False)\n" + TORCHS_MARKS)
    assert done.returncode == 0, done.stderr
    assert "around: calls a C function that is not known: time.clock_gettime" in done.stdout


def test_allow_in_graph():
    def helper(x):
        values = {"scale": 3}
        return x * len(str(values)) + open.__name__.count("o")

    torchbolt.allow_in_graph(helper)

    def fn(x):
        return helper(x + 1) * 2

    stats = compiled_twice(fn, torch.randn(4))
    assert stats["regions"] == 1 and stats["graph_breaks"] == 0
    assert torchbolt.allow_in_graph([helper]) == [helper]
    with pytest.raises(TypeError, match="3 is not callable"):
        torchbolt.allow_in_graph(3)


def test_allow_in_graph_for_a_c_function():
    import _testcapi

    function = _testcapi.get_args
    x = torch.randn(3)
    torchbolt.compile(lambda x: function(x)[0] * 2)(x)
    assert torchbolt.stats()["graph_breaks"] == 1
    torchbolt.reset()
    torchbolt.allow_in_graph(function)
    stats = compiled_twice(lambda x: function(x)[0] * 2 + 1, x)
    assert stats["graph_breaks"] == 0


def test_assume_constant_result():
    calls = []

    @torchbolt.assume_constant_result
    def lookup(name):
        calls.append(name)
        return {"scale": 3.0, "table": torch.arange(3.0)}[name]

    stats = compiled_twice(lambda x: x * lookup("scale"), torch.randn(3))
    assert stats["regions"] == 1 and len(calls) == 4  # three of them eager's own
    calls.clear()
    torchbolt.reset()
    stats = compiled_twice(lambda x: x * lookup("table"), torch.randn(3))
    assert stats["regions"] == 1 and len(calls) == 4


def test_a_constant_result_rests_on_what_it_was_asked_for():
    class Box:
        def __init__(self, n):
            self.n = n

    double = torchbolt.assume_constant_result(lambda n: 2 * n)
    inside = torchbolt.assume_constant_result(lambda box: box.n)
    count = torchbolt.assume_constant_result(lambda items: len(items))
    one, two = Box(1), Box(2)
    for function, calls in [
        (lambda x, n: x * double(n), (1, 2, 3, 1)),
        (lambda x, n: x * double(x[:n].shape[0]), (1, 2, 3, 1)),
        (lambda x, box: x * inside(box), (one, two, one)),
        (lambda x, items: x * count(items), ([1], [1, 2], [5])),
    ]:
        torchbolt.reset()
        compiled = torchbolt.compile(function)
        for value in calls:
            torch.testing.assert_close(compiled(torch.ones(3), value), function(torch.ones(3), value))


def test_substitute_in_graph():
    import _testcapi

    original = _testcapi.get_kwargs
    with pytest.raises(TypeError, match="is not a Python function"):
        torchbolt.substitute_in_graph(original)(len)

    @torchbolt.substitute_in_graph(original, skip_signature_check=True)
    def polyfill(**kwargs):
        return kwargs

    stats = compiled_twice(lambda x: original(a=x)["a"] * 2, torch.randn(3))
    assert stats["graph_breaks"] == 0 and stats["regions"] == 1

    def known(a, b):
        return a + b

    with pytest.raises(TypeError, match=r"does not take the arguments of known\(a, b\)"):
        torchbolt.substitute_in_graph(known)(lambda x: x)


def test_error_on_graph_break():
    def loose(x):
        time.clock_gettime(0)
        return x + 1

    @torchbolt.error_on_graph_break(True)
    def tight(x):
        time.clock_gettime(0)
        return x + 1

    x = torch.ones(2)
    compiled_twice(loose, x)
    with pytest.raises(torchbolt.GraphBreak, match="time"):
        torchbolt.compile(tight)(x)

    def mixed(x):
        with torchbolt.error_on_graph_break(True):
            y = x * 2
        time.clock_gettime(0)
        return y

    compiled_twice(mixed, x)

    def inside(x):
        with torchbolt.error_on_graph_break(True):
            time.clock_gettime(0)
        return x

    with pytest.raises(torchbolt.GraphBreak):
        torchbolt.compile(inside)(x)


def test_nested_compile_region():
    @torchbolt.nested_compile_region
    def layer(x):
        return torch.relu(x) * 2

    assert compiled_twice(lambda x: layer(layer(x)), torch.randn(3))["regions"] == 1


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


# For runs in other folders.
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p or ".") for p in sys.path)}

INSTALLED = """
import sys, torch, torchbolt
torchbolt.install()
@torch.compile
def f(x):
    return torch.relu(x) + 1
model = torch.nn.Linear(2, 2)
model.compile()
with torch.no_grad():
    f(torch.ones(2)), model(torch.ones(1, 2))
    torch.compile(f, mode="max-autotune", backend="inductor", dynamic=True)
assert torchbolt.stats()["regions"] == 2, torchbolt.stats()
torch.compiler.reset()
assert torchbolt.stats()["regions"] == 0
torch.compiler.cudagraph_mark_step_begin()
if hasattr(torch.compiler, "set_default_backend"):  # from 2.12 on
    torch.compiler.set_default_backend("eager")
    assert torchbolt.get_default_backend() == "eager"
assert "eager" in torch.compiler.list_backends()
assert "torch._dynamo" not in sys.modules
torchbolt.uninstall()
assert torch.compile.__module__ == "torch"
"""


def test_every_name_of_torch_compiler_is_there():
    assert [name for name in torch.compiler.__all__ if not hasattr(torchbolt, name)] == []
    assert torchbolt.keep_tensor_guards_unsafe is torch.compiler.keep_tensor_guards_unsafe
    assert not torchbolt.is_exporting() and torchbolt.cudagraph_mark_step_begin() is None
    assert torchbolt.set_enable_guard_collectives(True) is False
    seen = []
    torchbolt.compile(lambda x: seen.append(torchbolt.is_dynamo_compiling()) or x + 1)(torch.ones(2))
    assert seen == [True]
    with pytest.raises(AttributeError, match="'torchbolt' has no attribute 'is_exportin'"):
        torchbolt.is_exportin  # noqa: B018


def test_install():
    done = run("-c", INSTALLED)
    assert done.returncode == 0, done.stderr


WITH_DYNAMO = """
import os, sys, warnings, torch, torchbolt
torch.set_grad_enabled(False)
if LOADED_BEFORE:
    import torch._dynamo
    torch._dynamo.config.error_on_recompile = True
torchbolt.install()
assert LOADED_BEFORE == ("torch._dynamo" in sys.modules) == torchbolt.config.error_on_recompile
import torch._dynamo  # the user's own import
from torchbolt import config
torch._dynamo.config.cache_size_limit = 3
torch.compiler.config.fail_on_recompile_limit_hit = True
assert (config.recompile_limit, config.fail_on_recompile_limit_hit) == (3, True)
with torch._dynamo.config.patch(suppress_errors=True, recompile_limit=1, error_on_recompile=False):
    assert (config.suppress_errors, config.recompile_limit) == (True, 1)
    compiled = torch.compile(lambda x: x + 1, dynamic=False)
    compiled(torch.ones(2))
    try: compiled(torch.ones(3))
    except torch._dynamo.exc.FailOnRecompileLimitHit: pass
    else: assert False
assert (config.suppress_errors, config.recompile_limit) == (None, 3)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch._dynamo.config.recompile_limit = "many"
    torch._dynamo.config.specialize_int = True
assert ["recompile_limit = 'many' has no effect" in str(w.message) for w in told] == [True], told
assert torch._dynamo.explain(lambda x: x * 2)(torch.ones(2)).kernels == 1
torch._dynamo.config.disable = True
regions = torchbolt.stats()["regions"]
torch.compile(lambda x: x - 1)(torch.ones(2))
assert torchbolt.stats()["regions"] == regions > 0
torch._dynamo.reset()
assert torchbolt.stats()["regions"] == 0
torchbolt.uninstall()
torch._dynamo.config.recompile_limit = 5
assert config.recompile_limit == 3 and torch._dynamo.explain.__module__ == "torch._dynamo.eval_frame"
"""


@pytest.mark.parametrize("loaded_before", [False, True])
def test_install_beside_torchs_compiler(loaded_before):
    done = run("-c", WITH_DYNAMO.replace("LOADED_BEFORE", str(loaded_before)))
    assert done.returncode == 0, done.stderr


def test_python_dash_m(tmp_path):
    script = tmp_path / "train.py"
    (tmp_path / "beside.py").write_text("SCALE = 3\n")
    script.write_text(
        "import sys, torch, beside\n"
        "if __name__ == '__main__':\n"
        "    with torch.no_grad():\n"
        "        print(torch.compile(lambda x: x * beside.SCALE)(torch.ones(2)).tolist(), sys.argv[1:])\n"
        "    print('torch._dynamo' in sys.modules, type(__builtins__).__name__)\n"
    )
    done = run("-m", "torchbolt", str(script), "--steps", "3")
    assert done.stdout.splitlines() == ["[3.0, 3.0] ['--steps', '3']", "False module"], done.stderr
    for way, given in ((["-c", "import sys; print(sys.argv, __name__)", "a"], None), (["-", "a"], "stdin")):
        program = "import sys; print(sys.argv, __name__)" if given else None
        done = subprocess.run([sys.executable, "-m", "torchbolt", *way], input=program, capture_output=True, text=True)
        assert done.stdout == f"{[way[0], 'a']} __main__\n", done.stderr
    script.write_text("print(__file__, __import__('sys').argv)\nraise ValueError(1)\n")
    ours, plain = (
        subprocess.run([sys.executable, *how, "train.py", "a"], capture_output=True, text=True, cwd=tmp_path, env=ENV)
        for how in (["-m", "torchbolt"], [])
    )
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    assert "no file 'absent.py'" in run("-m", "torchbolt", "absent.py").stderr
    assert run("-m", "torchbolt").returncode == 2


def test_a_call_warns_of_nothing_that_eager_does_not_warn_of(caplog):
    """Its filters are the program's: it may count warnings, or make errors of them."""
    compiled = torchbolt.compile(lambda x: x + 1, dynamic=False, recompile_limit=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for size in (2, 3):
            compiled(torch.ones(size))
    assert not said and "recompile_limit" in caplog.text


def test_a_place_that_gets_no_entry_names_the_limit_that_was_reached(caplog):
    """Behind the end of a region lies a place without entries, which is not a failure to compile it."""

    def fn(x):
        y = x + 1
        torchbolt.graph_break()
        return y * 2

    with torchbolt.config.patch(accumulated_recompile_limit=1):
        assert torch.equal(torchbolt.compile(fn)(torch.ones(3)), fn(torch.ones(3)))
    assert "compiled 1 times (accumulated_recompile_limit)" in caplog.text
    assert "could not be compiled" not in caplog.text


def test_tensors_where_a_list_of_numbers_is_taken(caplog):
    """What torch.optim hands on where it is told that it is compiled: recorded, and where the place is full."""

    def fn(x, steps, name):
        numbers = [0.5 * step if torch.compiler.is_compiling() else 0.5 * step.item() for step in steps]
        torchbolt.graph_break()
        getattr(torch, name)([x], [x], [x + 1], numbers)
        return x, len(name)

    torchbolt.reset()
    compiled = torchbolt.compile(fn, recompile_limit=1)
    steps = [torch.tensor(3.0)]
    for _ in range(2):
        for name in ("_foreach_addcdiv_", "_foreach_addcmul_"):
            want, got = fn(torch.ones(3), steps, name), compiled(torch.ones(3), steps, name)
            torch.testing.assert_close(got[0], want[0])
    assert "recompile_limit" in caplog.text
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        compiled(torch.ones(3), steps, "_foreach_sqrt_")
