# tests/api/test_compile.py
"""compile() for functions, methods and modules: the shape of what it gives back."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys

import pytest
import torch
from torch.nn.utils import prune

import torchbolt


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor(2.0))
        self.calls = 0

    def forward(self, x, bias=None):
        y = torch.relu(self.linear(x)) * self.scale
        return y if bias is None else y + bias

    def other(self, x):
        return self.linear(x) + 1


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


pytestmark = pytest.mark.usefixtures("fresh")


def test_function_and_decorators():
    def f(x):
        """Doc."""
        return x * 2

    x = torch.randn(3)
    compiled = torchbolt.compile(f)
    assert torch.equal(compiled(x), f(x)) and torch.equal(compiled(x), f(x))
    assert compiled.__name__ == "f" and compiled.__doc__ == "Doc." and compiled.__wrapped__ is f

    @torchbolt.compile
    def g(x):
        return x + 1

    @torchbolt.compile(fullgraph=True)
    def h(x, *, k=3):
        return x + k

    assert torch.equal(g(x), x + 1) and torch.equal(h(x), x + 3) and torch.equal(h(x, k=4), x + 4)
    assert torch.equal(h(x, k=4), x + 4)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_bound_method(net):
    compiled = torchbolt.compile(net.other)
    x = torch.randn(2, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), net.other(x))
    assert compiled.__self__ is net


def test_method_decorator_in_a_class():
    class Thing:
        def __init__(self, k):
            self.k = k

        @torchbolt.compile
        def scaled(self, x):
            return x * self.k

    x = torch.randn(3)
    two, three = Thing(torch.tensor(2.0)), Thing(torch.tensor(3.0))
    for _ in range(2):
        assert torch.equal(two.scaled(x), x * 2) and torch.equal(three.scaled(x), x * 3)
    assert torchbolt.stats()["regions"] == 1


def test_above_and_below_staticmethod_and_classmethod():
    class Scale:
        by = 2

        @torchbolt.compile
        @staticmethod
        def above(x):
            return x * 3

        @staticmethod
        @torchbolt.compile
        def below(x):
            return x * 3

        @torchbolt.compile(dynamic=True)
        @classmethod
        def of_class(cls, x):
            return x * cls.by

    x = torch.ones(2)
    before = torchbolt.stats()["region_ends"]
    for scale in (Scale, Scale()):
        for call, by in ((scale.above, 3), (scale.below, 3), (scale.of_class, 2)):
            assert call(x).tolist() == call(x).tolist() == [by, by]
    assert torchbolt.stats()["region_ends"] == before


def test_module_shares_state(net):
    compiled = torchbolt.compile(net)
    assert isinstance(compiled, Net) and isinstance(compiled, torch.nn.Module)
    assert list(compiled.state_dict()) == list(net.state_dict()) == ["scale", "linear.weight", "linear.bias"]
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), net(x))
    compiled.calls = 5
    assert net.calls == 5 and compiled._orig_mod is net and not hasattr(net, "_orig_mod")
    net.linear.weight.mul_(2)
    torch.testing.assert_close(compiled(x), net(x))
    compiled.load_state_dict({k: v * 0.5 for k, v in net.state_dict().items()})
    torch.testing.assert_close(compiled(x), net(x))
    net.linear = torch.nn.Linear(4, 3)
    torch.testing.assert_close(compiled(x), net(x))
    compiled.train()
    assert net.training
    compiled.eval()
    compiled.to(torch.float64)
    torch.testing.assert_close(compiled(x.double()), net(x.double()))
    assert inspect.signature(compiled.forward) == inspect.signature(net.forward)
    assert repr(compiled) == repr(net)


def test_forward_called_by_its_name_is_compiled():
    """As in torch, whose compiled modules run what is compiled for `forward`, too; without hooks, as eager's does."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x, scale=2):
            self.calls += 1
            return x.sin() * scale

    net, x = Net(), torch.randn(3)
    compiled = torchbolt.compile(net)
    torchbolt.reset()
    for _ in range(3):
        torch.testing.assert_close(compiled.forward(x, scale=3), x.sin() * 3)
    assert net.calls == 3 and torchbolt.stats()["recordings"] > 0
    assert list(inspect.signature(compiled.forward).parameters) == ["x", "scale"]
    assert compiled.forward.__self__ is compiled and net.forward.__func__ is Net.forward
    torch.testing.assert_close(torch.jit.trace(compiled, (x,))(x), x.sin() * 2)
    torch.testing.assert_close(torch.compile(compiled, backend="eager")(x), x.sin() * 2)
    compiled.forward = torchbolt.compile(compiled.forward)
    torch.testing.assert_close(compiled(x), x.sin() * 2)
    net.forward = lambda x: x + 1  # of this module alone
    torch.testing.assert_close(compiled.forward(x), x + 1)
    with pytest.raises(AttributeError, match=r"Net.forward has no attribute 'aot_compile': torchbolt.save"):
        torchbolt.compile(Net(), fullgraph=True).forward.aot_compile(((x,), {}))


def test_two_instances_share_a_program():
    one, two = Net(), Net()
    a, b = torchbolt.compile(one), torchbolt.compile(two)
    x = torch.randn(2, 4)
    for _ in range(2):
        torch.testing.assert_close(a(x), one(x))
        torch.testing.assert_close(b(x), two(x))
    assert torchbolt.stats()["regions"] == 1


def test_pickle_and_copies_work(net):
    compiled = torchbolt.compile(net)
    x = torch.randn(2, 4)
    want = net(x)
    for again in (pickle.loads(pickle.dumps(compiled)), copy.deepcopy(compiled), copy.copy(compiled)):
        assert isinstance(again, Net)
        torch.testing.assert_close(again(x), want)
        assert torchbolt.api.compiled_of(again) is not None


def test_a_register_of_classes_does_not_see_the_compiled_one():
    known = []

    class Base(torch.nn.Module):
        def __init_subclass__(cls, *, tag):
            known.append(tag)

    class Model(Base, tag="model"):
        def forward(self, x):
            return x + 1

    compiled = torchbolt.compile(Model())
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert isinstance(compiled, Model)
    assert known == ["model"]


@pytest.mark.parametrize("parametrize", ["weight_norm", "spectral_norm", "orthogonal"])
def test_a_compiled_module_is_parametrized_and_no_other(parametrize):
    model, x = torch.nn.Linear(4, 4).eval(), torch.randn(3, 4)
    compiled = torchbolt.compile(model)
    plain = compiled(x)
    getattr(torch.nn.utils.parametrizations, parametrize)(compiled)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
        for each in model.parameters():
            each.add_(0.1)
    assert not torch.allclose(compiled(x), plain)
    assert "weight" not in vars(torch.nn.Linear)
    prune.l1_unstructured(torch.nn.Linear(4, 4), "weight", 0.5)
    torch.nn.utils.parametrize.remove_parametrizations(compiled, "weight")
    assert type(model) is torch.nn.Linear and isinstance(compiled, torch.nn.Linear)
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, model.weight, model.bias))


def test_a_class_derived_from_a_compiled_one():
    made = []

    class Meta(type):
        def __init__(cls, name, bases, namespace):
            made.append(name)

    class Model(torch.nn.Linear, metaclass=Meta):
        pass

    class Derived(type(torchbolt.compile(Model(4, 4)))):
        pass

    Derived.count = 5
    assert not hasattr(Model, "count") and Derived.__mro__[1] is Model and made.count("Derived") == 1
    assert Derived(4, 2)(torch.ones(1, 4)).shape == (1, 2)


@torchbolt.compile
def twice(x):
    return x * 2


class Adding:
    def __init__(self):
        self.n = torch.ones(4)

    def __call__(self, x):
        return x + self.n

    @torchbolt.compile
    def less(self, x):
        return x - self.n


class WithParts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.adding = torchbolt.compile(torch.nn.functional.gelu), torchbolt.compile(Adding())
        self.adding.tag = 3

    def forward(self, x):
        return self.adding(self.act(x)) * twice(x) + self.adding.less(x)


def test_compiled_functions_copy_and_pickle():
    for function in (twice, Adding.less):
        assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is copy.copy(function) is function
    model, x = WithParts(), torch.randn(4)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.adding.n is not model.adding.n and again.adding.tag == 3
        for part in (again.adding, again.act):
            assert torchbolt.api.compiled_of(part) is part
        for each in (again, torchbolt.compile(again)):
            for _ in range(2):
                torch.testing.assert_close(each(x), model(x))


def test_compiled_functions_have_attributes():
    def plain(x):
        counting.calls += 1
        return x * counting.calls

    plain.mark = 1
    counting = torchbolt.compile(plain)
    counting.calls, counting.__doc__ = 0, "counts"
    for turn in range(1, 5):
        assert counting(torch.ones(2)).tolist() == [turn, turn] and counting.calls == turn
    assert vars(counting) == {"mark": 1, "calls": 4, "__doc__": "counts"} and not hasattr(plain, "calls")
    reading = torchbolt.compile(lambda x: x * counting.calls + len(counting.__name__))
    for n in (3, 4, 5):
        counting.calls = n
        assert reading(torch.ones(1)).item() == n + 5
    del counting.calls
    with pytest.raises(AttributeError, match="'function' object has no attribute 'calls'"):
        counting.calls  # noqa: B018
    assert repr(counting) == repr(plain).replace("<function", "<compiled function")
    assert not hasattr(counting, "aot_compile")
    with pytest.raises(AttributeError, match=r"compiled .*plain has no attribute 'aot_compile': torchbolt.save"):
        counting.aot_compile(((torch.ones(2),), {}))


def test_save_and_load_whole_module(net, tmp_path):
    compiled = torchbolt.compile(net)
    torch.save(compiled, tmp_path / "m.pt")
    again = torch.load(tmp_path / "m.pt", weights_only=False)
    x = torch.randn(2, 4)
    torch.testing.assert_close(again(x), net(x))


def test_compiling_what_is_compiled(net):
    twice = torchbolt.compile(torchbolt.compile(net))
    x = torch.randn(2, 4)
    torch.testing.assert_close(twice(x), net(x))
    f = torchbolt.compile(torchbolt.compile(lambda x: x + 1))
    assert torch.equal(f(x), x + 1) and torch.equal(f(x), x + 1)


def test_a_compiled_part_inside_a_compiled_whole(net):
    inner = torchbolt.compile(net)

    def f(x):
        return inner(x) * 2

    compiled = torchbolt.compile(f)
    x = torch.randn(2, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), net(x) * 2)
    assert torchbolt.stats()["eager_fallbacks"] == 0
    assert torchbolt.explain(f)(x).graph_break_count == 0


def test_disable_gives_the_model_back(net):
    assert torchbolt.compile(net, disable=True) is net


@pytest.mark.parametrize(
    "arguments, kind, words",
    [
        (dict(mode="max-autotun"), ValueError, "max-autotune"),
        (dict(backend="torchbold"), torchbolt.exc.InvalidBackend, "torchbolt"),
        (dict(options={"epilogue_fusio": True}), ValueError, "epilogue_fusion"),
        (dict(options={"max_autotune": 1}), TypeError, "bool"),
        (dict(fullgraph="yes"), TypeError, "fullgraph"),
        (dict(mode=[]), TypeError, "mode must be one of default, lite, "),
        (dict(options=["max_autotune"]), TypeError, r"options must be a dict of names and their values, not \['max"),
        (dict(options="max_autotune"), TypeError, "options must be a dict"),
        (dict(dynamic="yes"), TypeError, "dynamic"),
        (dict(recompile_limit=-1), ValueError, "recompile_limit"),
        (dict(full_graph=True), TypeError, "full_graph"),
    ],
)
def test_bad_arguments_are_named_at_once(arguments, kind, words):
    with pytest.raises(kind, match=words) as caught:
        torchbolt.compile(lambda x: x, **arguments)
    assert isinstance(caught.value, RuntimeError) or "full_graph" in words  # torch's kind


@pytest.mark.parametrize(
    "arguments, regions",
    [
        (dict(mode="lite"), 1),
        (dict(mode=None, options={}), 1),
        (dict(fullgraph=1), 1),
        (dict(fullgraph=None, disable=None), 1),
        (dict(disable=0), 1),
        (dict(dynamic=0), 2),
        (dict(isolate_recompiles=True, shapes_spec=None), 1),
        (dict(disable=1), 0),
        (dict(recompile_limit=0), 0),
    ],
)
def test_arguments_that_torch_takes(arguments, regions):
    compiled = torchbolt.compile(lambda x: x + 1, **arguments)
    for n in (2, 3, 4) if regions == 2 else (2, 2):
        assert torch.equal(compiled(torch.ones(n)), torch.ones(n) + 1)
    assert min(torchbolt.stats()["regions"], 2) == regions


@torchbolt.compile
class Scale:
    def __init__(self, n):
        assert not torchbolt.is_compiling()
        self.n = n

    def __call__(self, x):
        assert torchbolt.is_compiling()
        return x * self.n


@torchbolt.compile(fullgraph=True)
class Scaled(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


def test_calls_of_a_compiled_class_are_compiled():
    for scale in (Scale(2), copy.copy(Scale(2))):
        assert scale(torch.ones(2)).tolist() == [2, 2] and isinstance(scale, Scale)
    assert torchbolt.stats()["regions"] == 1
    model, x = Scaled(2, 2), torch.ones(1, 2)
    for each in (model, pickle.loads(pickle.dumps(model)), torchbolt.compile(model)):
        torch.testing.assert_close(each(x), torch.nn.functional.linear(x, model.weight, model.bias) * 2)
    assert isinstance(model, Scaled) and list(model.state_dict()) == ["weight", "bias"]
    assert torchbolt.stats()["eager_fallbacks"] == 0
    assert torchbolt.compile(dict) is dict


@pytest.mark.parametrize("target", [3, "model"])
def test_bad_targets(target):
    with pytest.raises(TypeError, match="torchbolt.compile"):
        torchbolt.compile(target)


def test_stats_and_explain_have_the_promised_fields(net):
    compiled = torchbolt.compile(net)
    x = torch.randn(2, 4)
    compiled(x), compiled(x)
    stats = torchbolt.stats()
    assert set(stats) >= {
        "regions", "recordings", "graph_breaks", "break_reasons", "recompiles", "eager_fallbacks", "cache_hits",
        "cache_misses", "specialized", "compile_seconds",
    }  # fmt: skip
    assert stats["regions"] == 1 and stats["recompiles"] == 0 and stats["compile_seconds"] > 0
    seen = torchbolt.explain(net)(x)
    assert seen.graph_count == 1 and seen.graph_break_count == 0 and seen.op_count >= 2
    (ops,) = seen.ops_per_graph
    assert ops[0] == "linear" and "Ops 1: linear" in str(seen) and len(seen.out_guards) > 3 and seen.kernels >= 1
    assert "Graph Count: 1" in str(seen) and "functionalize" in seen.compile_times
    torchbolt.reset()
    assert torchbolt.stats()["regions"] == 0


def test_no_peer_is_imported():
    program = """
import sys, torch
peers = ("torch._inductor", "torch._functorch", "torch.fx.experimental.proxy_tensor", "torch.export", "torch._dynamo")
before = set(sys.modules)
import torchbolt
f = torchbolt.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()))
with torch.no_grad():
    f(torch.randn(2, 4)), f(torch.randn(2, 4))
new = [m for m in set(sys.modules) - before if m.startswith(peers)]
assert not new, new
assert torchbolt.stats()["regions"] == 1
"""
    subprocess.run([sys.executable, "-c", program], check=True)
