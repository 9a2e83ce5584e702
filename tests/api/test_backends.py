# tests/api/test_backends.py
"""backend=: ours, eager, and functions that get each region as an FX graph; and torch.compile with ours."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from counting import Counting
from torch import nn

import torchbolt
from torchbolt import exc

pytestmark = pytest.mark.usefixtures("fresh")


def check(fn, *args, graphs=1, calls=3):
    backend = Counting()
    compiled = torchbolt.compile(fn, backend=backend)
    for _ in range(calls):
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert len(backend.graphs) == graphs
    return backend


def test_operators_and_numbers():
    seen = check(lambda x, y: torch.relu(x) * 2 + y, torch.randn(4, 3), torch.randn(3))
    assert seen.targets() == ["aten.relu.default", "aten.mul.Tensor", "aten.add.Tensor"]
    assert [tuple(t.shape) for t in seen.inputs[0]] == [(4, 3), (3,)]


def test_what_nodes_know():
    def fn(x):
        return x.t() @ x

    seen = check(fn, torch.randn(4, 3))
    placeholder, transpose, product, output = seen.graphs[0].graph.nodes
    assert placeholder.op == "placeholder" and output.op == "output"
    assert transpose.meta["val"].shape == (3, 4) and transpose.meta["val"].stride() == (1, 3)
    assert product.meta["tensor_meta"].dtype is torch.float32 and product.meta["tensor_meta"].shape == (3, 3)
    line = fn.__code__.co_firstlineno + 1
    assert f'test_backends.py", line {line}, in fn' in product.meta["stack_trace"]
    assert "return x.t() @ x" in product.meta["stack_trace"]


def test_lines_are_the_users_also_where_torch_calls_the_operator():
    layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).eval()
    counted = Counting()

    def fn(x):
        return layer(x)

    with torch.no_grad():
        torchbolt.compile(fn, backend=counted)(torch.ones(2, 3))
    traces = [n.meta["stack_trace"] for n in counted.graphs[0].graph.nodes if n.op == "call_function"]
    assert len(traces) == 2 and all("test_backends.py" in t and "return layer(x)" in t for t in traces)


def test_a_region_without_operators_is_no_graph():
    counted = Counting()
    compiled = torchbolt.compile(lambda x: (x, 5), backend=counted)
    x = torch.ones(2)
    assert compiled(x) == compiled(x) == (x, 5) and not counted.graphs


def test_arguments_come_before_what_a_module_holds():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    seen = check(model, torch.randn(5, 3))
    names = [n.name for n in seen.graphs[0].graph.nodes if n.op == "placeholder"]
    assert names[1:] == ["self_0_weight", "self_0_bias", "self_2_weight", "self_2_bias"]
    assert seen.inputs[0][0].shape == (5, 3)


def test_arguments_in_the_order_of_the_call():
    seen = check(lambda a, b, c: c * b + a, torch.randn(1), torch.randn(2), torch.randn(2))
    assert [tuple(t.shape) for t in seen.inputs[0]] == [(1,), (2,), (2,)]
    assert [n.name for n in seen.graphs[0].graph.nodes if n.op == "placeholder"] == ["a", "b", "c"]


def test_lists_of_results_and_keyword_arguments():
    def fn(x):
        a, b = x.split(2)
        values, at = torch.cat([a, b], dim=1).max(1)
        return values.to(torch.float64), at, torch.zeros(2, dtype=torch.int32)

    check(fn, torch.randn(4, 3))


def test_in_place_and_views():
    def fn(x):
        y = x.clone()
        y[1:].mul_(2)
        y.t_()
        return y

    check(fn, torch.randn(4, 3))


def test_a_written_argument():
    def fn(x):
        x.add_(1)
        return x * 2

    backend = Counting()
    compiled = torchbolt.compile(fn, backend=backend)
    for _ in range(3):
        x = torch.zeros(3)
        assert torch.equal(compiled(x), torch.full((3,), 2.0)) and torch.equal(x, torch.ones(3))


def test_a_constant():
    def fn(x):
        return torch.tensor([1.0, 2.0]).add_(x)

    seen = check(fn, torch.randn(2))
    assert len(list(seen.graphs[0].buffers())) == 1


def test_gradients_flow_through_a_backends_graph():
    def fn(x, w):
        with torch.no_grad():
            scale = x.abs().max()
        return ((x @ w) / scale).sum()

    with torch.enable_grad():
        x = torch.randn(4, 3)
        w, v = (torch.ones(3, 2, requires_grad=True) for _ in range(2))
        seen = Counting()
        compiled = torchbolt.compile(fn, backend=seen)
        for _ in range(2):
            w.grad = v.grad = None
            compiled(x, w).backward()
            fn(x, v).backward()
            torch.testing.assert_close(w.grad, v.grad)
    assert "_set_grad_enabled" in " ".join(seen.targets())


def test_one_graph_for_each_region():
    def fn(x):
        y = x * 2
        torchbolt.graph_break()
        return y + 1

    check(fn, torch.randn(3), graphs=2)
    backend = Counting()
    compiled = torchbolt.compile(lambda x: x * 2, backend=backend)
    for n in (2, 3, 2, 3):
        compiled(torch.randn(n))
    assert len(backend.graphs) == 2


def test_a_backend_may_compile_the_graph_itself():
    def backend(gm, inputs):
        return torchbolt.compile(gm)

    compiled = torchbolt.compile(lambda x: torch.sin(x) + 1, backend=backend)
    x = torch.randn(3)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), torch.sin(x) + 1)


def test_a_backends_own_options():
    seen = []

    def backend(gm, inputs, **arguments):
        seen.append(arguments)
        return gm.forward

    x = torch.ones(2)
    for arguments in ({"options": {"my": 3}}, {"mode": "max-autotune"}, {"mode": "mine"}, {}, {"mode": "default"}):
        compiled = torchbolt.compile(lambda x: x + 1, backend=backend, **arguments)
        assert compiled(x).tolist() == [2, 2]
        assert seen.pop() == ({} if arguments.get("mode") == "default" else arguments)
    options = {"my": [3], "recompile_limit": 1, "guard_filter_fn": None}  # the latter two say how we record
    model = torch.nn.Linear(2, 2)
    for _ in range(2):
        torchbolt.compile(model, backend=backend, options=options)(x)
    assert seen == [{"options": {"my": [3]}}]


def test_a_backend_that_fails():
    def broken(gm, inputs):
        raise KeyError("nothing here")

    with pytest.raises(exc.BackendCompilerFailed, match="backend='broken' raised:\nKeyError: 'nothing here'") as caught:
        torchbolt.compile(lambda x: x + 1, backend=broken)(torch.ones(2))
    assert isinstance(caught.value.inner_exception, KeyError) and caught.value.__cause__ is caught.value.inner_exception
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.inner_exception.args == ("nothing here",)
    with pytest.raises(exc.BackendCompilerFailed, match="returns a callable, not NoneType"):
        torchbolt.compile(lambda x: x + 1, backend=lambda gm, inputs: None)(torch.ones(2))


def test_a_backends_function_that_fails():
    compiled = torchbolt.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda *args: ())
    compiled(torch.ones(2))
    with pytest.raises(TypeError, match="returned 0 results, its graph has 1"):
        compiled(torch.ones(2))

    def raising(*args):
        raise OSError("late")

    compiled = torchbolt.compile(lambda x: x + 2, backend=lambda gm, inputs: raising)
    compiled(torch.ones(2))
    with pytest.raises(OSError, match="late"):
        compiled(torch.ones(2))


def test_eager():
    compiled = torchbolt.compile(lambda x: torch.softmax(x, 0), backend="eager")
    x = torch.randn(5)
    for _ in range(3):
        assert torch.equal(compiled(x), torch.softmax(x, 0))
    (region,) = torchbolt.api.compiled_of(compiled)._regions()
    assert not region["compiled"] and region["why_replayed"] == "the backend is eager"
    assert torchbolt.stats()["eager_fallbacks"] == 0


def shapes_and_views(x):
    a, b = x.split(2)
    y = torch.where(a > 0, a, b.t().reshape(2, 6)).flip(0)
    return F.pad(y, (1, 2), value=3.0)[:, 1::2], x.sum(0, keepdim=True), x.argmax(1), y.prod(1), (y > 0).any(0)


def activations(x):
    y = F.gelu(x) + F.silu(x) + F.elu(x, 1.5) + F.hardtanh(x) + F.leaky_relu(x) + F.softplus(x) + F.mish(x)
    return y, torch.exp(x).log1p().rsqrt(), torch.fmod(x, 2) + torch.remainder(x, 2) + x // 2 + torch.erf(x)


def layers(x):
    image = x.reshape(1, 2, 3, 4)
    y = F.conv2d(image, torch.ones(4, 2, 2, 2)) + F.interpolate(image, scale_factor=2)[:, :1, :2, :3]
    return F.layer_norm(y, (3,)), F.group_norm(y, 2), F.max_pool2d(y, 2), torch.softmax(y, 1), y.var(), y.logsumexp(0)


def writes(x):
    y = x.clone()
    y[1:].mul_(2)
    y[:, 0] = 5
    x.add_(1)
    x.t_()
    return y, y[0], x[0], torch.arange(3, dtype=torch.float32) * 2 + 1, torch.full((2,), 7)


def library(x):
    q = x.reshape(1, 2, 3, 4)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True), torch.topk(x, 2)[0], x @ x.t(), torch.cat([x, x])


@pytest.mark.parametrize("fn", [shapes_and_views, activations, layers, writes, library])
def test_aot_eager(fn):
    compiled = torchbolt.compile(fn, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        x, y = torch.randn(4, 6), torch.empty(4, 6)
        y.copy_(x)
        for got, want in zip(compiled(y), fn(x), strict=True):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()
        assert torch.equal(x, y)
    (region,) = torchbolt.api.compiled_of(compiled)._regions()
    assert region["compiled"] and region["kernels"] == 0 and "graph @" in region["graph"]


def test_aot_eager_enlarges():
    compiled = torchbolt.compile(lambda x: F.interpolate(x, scale_factor=2), backend="aot_eager", fullgraph=True)
    x = torch.arange(12.0).reshape(1, 2, 6)
    for _ in range(2):
        assert torch.equal(compiled(x), x.repeat_interleave(2, 2))


def test_aot_eager_writes_what_is_read_too():
    def fn(x, y):
        x.detach()[0] = 0.25
        return y * 2

    compiled = torchbolt.compile(fn, backend="aot_eager")
    for same in (False, True, False, True):
        x, y = torch.ones(2, 3), torch.ones(2, 3)
        want = torch.full((2, 3), 2.0)
        if same:
            y, want[0] = x, 0.5
        assert torch.equal(compiled(x, y), want)


def test_backends_registered_with_torch(tmp_path):
    package = tmp_path / "offered-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: offered\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[torch_dynamo_backends]\noffered = offered:backend\n")
    (tmp_path / "offered.py").write_text("def backend(gm, inputs):\n    print('offered')\n    return gm.forward\n")
    program = f"""
import sys, torch, torchbolt
sys.path.insert(0, {str(tmp_path)!r})
x = torch.ones(2)
print(torchbolt.compile(lambda x: x + 1, backend="offered")(x).tolist(), "torch._dynamo" in sys.modules)
def mine(gm, inputs): print("mine"); return gm.forward
torch._dynamo.register_backend(mine, name="of_torch")
print(torchbolt.compile(lambda x: x + 1, backend="of_torch")(x).tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "offered\n[2.0, 2.0] False\nmine\n[2.0, 2.0]\n", done.stderr


def test_names():
    seen = []

    @torchbolt.register_backend(name="kept", tags=("debug",))
    def keep(gm, inputs):
        seen.append(gm)
        return gm

    assert {"eager", "torchbolt"} <= set(torchbolt.list_backends())
    assert "kept" not in torchbolt.list_backends() and "kept" in torchbolt.list_backends(exclude_tags=())
    torchbolt.compile(lambda x: x + 1, backend="kept")(torch.ones(2))
    assert len(seen) == 1
    with pytest.raises(exc.InvalidBackend, match="Did you mean 'kept'"):
        torchbolt.compile(lambda x: x, backend="kpt")
    with pytest.raises(exc.InvalidBackend, match="a name or a function, not 3"):
        torchbolt.compile(lambda x: x, backend=3)
    for name, whose in (("eager", "torchbolt's own"), ("kept", "registered already")):
        with pytest.raises(AssertionError, match=whose):
            torchbolt.register_backend(compiler_fn=keep, name=name)


def test_the_default_backend():
    seen = []
    assert torchbolt.get_default_backend() == "torchbolt"
    torchbolt.set_default_backend(lambda gm, inputs: seen.append(gm) or gm)
    try:
        torchbolt.compile(lambda x: x + 1)(torch.ones(2))
        torchbolt.set_default_backend("eager")
        torchbolt.compile(lambda x: x + 1)(torch.ones(2))
    finally:
        torchbolt.set_default_backend(None)
    torchbolt.compile(lambda x: x + 1)(torch.ones(2))
    assert len(seen) == 1 and torchbolt.get_default_backend() == "torchbolt"
    with pytest.raises(TypeError, match="3 is no name"):
        torchbolt.set_default_backend(3)


TORCH_COMPILE = """
import torch, torchbolt
def f(x):
    return torch.relu(x * 2 + 1).sum(0)
with torch.no_grad():
    assert "torchbolt" in torch.compiler.list_backends()
    torchbolt.set_default_backend("eager")
    compiled = torch.compile(f, backend="torchbolt")
    for n in (3, 3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), f(x))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    torch.testing.assert_close(torch.compile(model, backend="torchbolt")(x), model(x))
    class Net(torch.nn.Module):
        def forward(self, x):
            return model(x).relu()
    before = torchbolt.stats()["regions"]
    net = Net()
    net.compile(backend="torchbolt", mode="reduce-overhead")
    torch.testing.assert_close(net(x), model(x).relu())
    assert torchbolt.stats()["regions"] == before + 1
print(torchbolt.stats()["regions"], torchbolt.stats()["eager_fallbacks"])
"""


def test_torch_compile_with_our_backend():
    done = subprocess.run([sys.executable, "-c", TORCH_COMPILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    regions, fallbacks = map(int, done.stdout.split())
    assert regions >= 3 and fallbacks == 0


def test_placeholders_have_names_of_their_own():
    def fn(a, b):
        v = a + float(b.sum() > 0.37)
        return v, b * b[b > 0.1].numel(), a * a[a > 0.1].numel()

    compiled = torchbolt.compile(fn, backend=lambda gm, inputs: gm.forward)
    for _ in range(4):
        a, b = torch.randn(4, 5), torch.randn(4, 5)
        torch.testing.assert_close(compiled(a, b), fn(a, b))
