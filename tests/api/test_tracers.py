# tests/api/test_tracers.py
"""Debuggers, coverage tools and profilers keep working while compiled functions are recorded and run.

Where sys.settrace is in force, every line of Python is CPython's to run: a call of a compiled function is a plain call,
counted as a fall-back. Profilers see what is compiled as one step.
"""

from __future__ import annotations

import cProfile
import faulthandler
import io
import pdb
import pstats
import subprocess
import sys
import threading

import pytest
import torch

import torchbolt

pytestmark = pytest.mark.usefixtures("fresh")


def helper(x):
    y = x * 2
    return y + 1


def program(x):
    y = helper(x)
    if x.shape[0] > 2:
        y = y.relu()
    return y


@pytest.fixture
def compiled():
    return torchbolt.compile(program)


X = torch.arange(4.0)


def lines_of(fn, code):
    """The lines of `code` that a tracer sees while fn() runs, and fn's result."""
    seen = []

    def trace(frame, event, arg):
        if event == "line" and frame.f_code is code:
            seen.append(frame.f_lineno - code.co_firstlineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = fn()
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    return seen, result


@pytest.mark.parametrize("calls_before", [0, 1, 2])
def test_a_tracer_sees_every_line(compiled, calls_before):
    for _ in range(calls_before):
        compiled(X)
    for code, wanted in ((program.__code__, [1, 2, 3, 4]), (helper.__code__, [1, 2])):
        seen, result = lines_of(lambda: compiled(X), code)
        assert seen == wanted and torch.equal(result, program(X))
    assert torchbolt.stats()["eager_fallbacks"] == 2
    regions = torchbolt.stats()["regions"]
    assert torch.equal(compiled(X), program(X))
    assert torchbolt.stats()["regions"] == max(regions, 1)


def test_a_tracer_that_was_removed_leaves_nothing(compiled):
    lines_of(lambda: compiled(X), program.__code__)
    compiled(X)
    before = torchbolt.stats()
    compiled(X)
    assert torchbolt.stats() == before | {"eager_fallbacks": 1} and before["regions"] == 1


def test_a_tracer_of_another_thread(compiled):
    seen = {}

    def work():
        seen["lines"], seen["result"] = lines_of(lambda: compiled(X), program.__code__)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen["lines"] == [1, 2, 3, 4] and torch.equal(seen["result"], program(X))
    assert torch.equal(compiled(X), program(X))
    assert torchbolt.stats()["regions"] == 1


def test_the_users_errors_under_a_tracer(compiled):
    def fails():
        with pytest.raises(AttributeError):
            compiled(3)

    lines_of(fails, program.__code__)


@pytest.mark.parametrize("calls_before", [0, 2])
def test_sys_setprofile(compiled, calls_before):
    for _ in range(calls_before):
        compiled(X)
    depth, events = [0], []

    def profile(frame, event, arg):
        depth[0] += {"call": 1, "return": -1}.get(event, 0)
        events.append(event)

    sys.setprofile(profile)
    try:
        results = [compiled(X) for _ in range(3)]
        depth_then = depth[0]
    finally:
        sys.setprofile(None)
    assert events and all(torch.equal(r, program(X)) for r in results)
    assert abs(depth_then) <= 1  # the list comprehension's own frame
    assert torchbolt.stats()["regions"] == 1 and torchbolt.stats()["eager_fallbacks"] == 0


def test_cprofile(compiled, tmp_path):
    def work():
        return [compiled(X) for _ in range(5)]

    profiler = cProfile.Profile()
    results = profiler.runcall(work)
    assert all(torch.equal(r, program(X)) for r in results)
    functions = {name for _, _, name in pstats.Stats(profiler).stats}
    assert "work" in functions
    assert torchbolt.stats()["regions"] == 1 and torchbolt.stats()["eager_fallbacks"] == 0


def test_cprofile_over_regions_that_end():
    def says(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return [helper(y) for _ in range(2)]

    compiled = torchbolt.compile(says)
    profiler = cProfile.Profile()
    for _ in range(3):
        for got, want in zip(profiler.runcall(compiled, X), says(X)):
            torch.testing.assert_close(got, want)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_trace_and_profile_set_while_recording():
    seen = []

    def turns_on(x):
        y = x * 2
        sys.setprofile(lambda *event: seen.append(event[1]))
        y = helper(y)
        sys.setprofile(None)
        return y + 1

    compiled = torchbolt.compile(turns_on)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), turns_on(X))
    assert sys.getprofile() is None and seen


def test_the_coverage_module_of_python(tmp_path):
    """`python -m trace` counts every line."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import torch, torchbolt
def program(x):
    y = x * 2
    return y + 1
compiled = torchbolt.compile(program)
with torch.no_grad():
    for _ in range(3):
        compiled(torch.ones(3))
print(torchbolt.stats()["regions"], "regions")
"""
    )
    command = [sys.executable, "-m", "trace", "--count", "--ignore-dir", ":".join(sys.path[1:]), "-C", str(tmp_path)]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "0 regions" in done.stdout, done.stdout + done.stderr
    counted = (tmp_path / "script.cover").read_text()
    assert "    3:     y = x * 2" in counted and "    3:     return y + 1" in counted, counted


def test_faulthandler_names_the_users_frames():
    def inner(x):
        faulthandler.dump_traceback(file=file, all_threads=True)
        return x * 2

    def outer(x):
        return inner(x + 1) + 1

    import tempfile

    with tempfile.TemporaryFile("w+") as file:
        compiled = torchbolt.compile(outer)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), outer(X))
        file.seek(0)
        text = file.read()
    assert text.count("in inner") == 4 and text.count("in outer") == 4, text


def test_faulthandler_on_a_timer(compiled, tmp_path):
    with open(tmp_path / "dump", "w") as file:
        faulthandler.dump_traceback_later(0.05, repeat=True, file=file)
        try:
            for i in range(30):
                fresh = torchbolt.compile(lambda x, i=i: helper(x) * i)
                fresh(X), fresh(X)
        finally:
            faulthandler.cancel_dump_traceback_later()


def test_a_debugger_that_is_started_inside_stops_there():
    def fn(x, said):
        y = x + 1
        commands = io.StringIO("p y\nn\np z\nn\nn\nc\n")
        pdb.Pdb(stdin=commands, stdout=said, nosigint=True, readrc=False).set_trace()
        z = y * 2
        return z

    def outer(x, said):
        z = fn(x, said)
        return z + 1

    compiled = torchbolt.compile(outer)
    texts = []
    for run in (outer, compiled, compiled, compiled):
        said = io.StringIO()
        assert run(X, said).tolist() == [3, 5, 7, 9]
        texts.append([line for line in said.getvalue().splitlines() if "test_tracers" not in line])
    assert texts[1:] == texts[:1] * 3 and "-> z = y * 2" in texts[0] and "-> return z + 1" in texts[0]
    assert sys.gettrace() is None


@pytest.mark.parametrize("calls_before", [0, 3])
def test_torch_jit_trace_sees_every_operator(calls_before):
    """What is computed where it does not look would be a constant of its graph."""
    layer, x = torch.nn.Linear(3, 3).requires_grad_(False), torch.ones(3)
    part = torchbolt.compile(layer)

    def whole(x):
        return part(x) + torch.sin(x)

    for _ in range(calls_before):
        part(x)
    for traced in (
        torch.jit.trace(part, (x,)),
        torch.jit.trace(whole, (x,)),
        torch.jit.trace(torchbolt.compile(whole), x),
    ):
        assert "aten::linear" in str(traced.inlined_graph)
    torch.testing.assert_close(torch.jit.trace(whole, (x,))(x * 2), layer(x * 2) + torch.sin(x * 2))
