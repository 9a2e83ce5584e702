# tests/end_to_end/test_products_at_once.py
"""Products of one operand by several weights are one call, wherever the weights lie, and give what each gives."""

import pytest
import torch
from torch.nn import functional as F

import torchbolt


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    torchbolt.reset()
    monkeypatch.setenv("TORCHBOLT_MERGE_PRODUCTS", "1")


class Layer(torch.nn.Module):
    """Keys and values of fewer heads than the queries have, and a gated layer."""

    def __init__(self, bias=False, width=32, heads=4, inner=48):
        super().__init__()
        plain = lambda a, b: torch.nn.Linear(a, b, bias)  # noqa: E731
        self.bias = bias
        self.q, self.k, self.v = plain(width, width), plain(width, width // 2), plain(width, width // 2)
        self.gate, self.up, self.down = plain(width, inner), plain(width, inner), plain(inner, width)
        self.heads = heads

    def forward(self, x):
        size = x.shape[-1] // self.heads
        q, k, v = (t.unflatten(-1, (-1, size)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        x = x + F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def agrees(model, x, compiled=None):
    """No further from float64 than eager is, twice; the plans that ran."""
    exact = (Layer(model.bias) if isinstance(model, Layer) else type(model)()).double()
    exact.load_state_dict(model.state_dict())
    compiled = compiled or torchbolt.compile(model)
    with torch.no_grad():
        want = exact(x.double())
        allowed = 2 * (model(x).double() - want).abs().max() + 1e-6
        for _ in range(2):
            assert (compiled(x).double() - want).abs().max() <= allowed
    return "".join(region["plan"] for region in torchbolt.api.compiled_of(compiled)._regions())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [(1, 1), (2, 7)])
def test_keys_and_values_and_both_halves_of_a_gated_layer(dtype, rows):
    plan = agrees(Layer().to(dtype), torch.randn(*rows, 32, dtype=dtype))
    assert plan.count("library linears ") == 2


def test_by_default_the_processor_computes_them_itself(monkeypatch):
    monkeypatch.delenv("TORCHBOLT_MERGE_PRODUCTS")
    assert "library linears " not in agrees(Layer(), torch.randn(2, 7, 32))


def lay(model, order, between=0):
    """The weights of keys and values, and of the gated layer, in one block of memory, in this order."""
    for names in (("k", "v"), ("gate", "up")):
        weights = [getattr(model, name).weight for name in names]
        size = weights[0].numel()
        block = torch.empty(2 * size + between)
        for place, i in enumerate(order):
            part = block[place * (size + between) :][:size].view_as(weights[i])
            part.copy_(weights[i].detach())
            weights[i].data = part


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("between", [0, 5])
def test_weights_may_lie_anywhere(order, between):
    model = Layer()
    lay(model, order, between)
    plan = agrees(model, torch.randn(2, 7, 32))
    assert plan.count("library linears ") + plan.count("library joined ") == 2
    assert ("library joined " in plan) == (between == 0)


def lay_joined(model, names):
    """The weights of these in one block of memory, in this order."""
    weights = [getattr(model, name).weight for name in names]
    block = torch.cat([w.detach() for w in weights])
    for w, part in zip(weights, block.split([w.shape[0] for w in weights]), strict=True):
        w.data = part


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("order", ["qkv", "vqk"])
def test_weights_that_lie_side_by_side_are_one_matrix(bias, order):
    model, x = Layer(bias), torch.randn(2, 7, 32)
    lay_joined(model, order)
    compiled = torchbolt.compile(model)
    plan = agrees(model, x, compiled)
    assert plan.count("library joined ") == 1 and plan.count("library linears ") == (not bias)
    with torch.no_grad():
        model.v.weight.mul_(2)
        agrees(model, x, compiled)
        model.k.weight = torch.nn.Parameter(torch.randn_like(model.k.weight))  # elsewhere
        agrees(model, x, compiled)
        if bias:
            model.q.bias.add_(1)
        agrees(model, x, compiled)
        lay_joined(model, order)
        agrees(model, x, compiled)


def test_weights_that_keep_changing():
    model, x = Layer(True), torch.randn(2, 7, 32)
    lay_joined(model, "qkv")
    compiled = torchbolt.compile(model)
    for _ in range(20):
        with torch.no_grad():
            model.k.weight.add_(0.01)
        agrees(model, x, compiled)
    torchbolt.wait()
    for _ in range(20):
        with torch.no_grad():
            model.k.weight.add_(0.01)
        agrees(model, x, compiled)


def test_weights_may_change_and_move():
    model, x = Layer(), torch.randn(2, 7, 32)
    compiled = torchbolt.compile(model)
    agrees(model, x, compiled)
    with torch.no_grad():
        model.k.weight.mul_(2)
    agrees(model, x, compiled)
    lay(model, (1, 0))
    agrees(model, x, compiled)
    model.up.weight = torch.nn.Parameter(torch.randn_like(model.up.weight))
    agrees(model, x, compiled)


def compared(f, *args):
    compiled = torchbolt.compile(f)
    with torch.no_grad():
        for got, want in zip(compiled(*args), f(*args), strict=True):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride() and got._base is None
    return torchbolt.api.compiled_of(compiled)._regions()[0]["plan"]


def test_three_weights_and_weights_that_are_turned_round():
    weights = torch.randn(3, 8, 16)
    turned = torch.randn(2, 16, 8)

    def f(x, a, b, c, d, e):
        return (x @ a.t()).relu() + (x @ b.t()).sin() - (x @ c.t()).cos(), (x @ d).relu() * (x @ e)

    assert "library linears " in compared(f, torch.randn(5, 16), *weights, *turned)
    assert "library" not in compared(f, torch.randn(16), *weights, *turned)  # sums of products, on the processor
    apart = [w.clone() for w in weights]
    assert "library linears " in compared(f, torch.randn(5, 16), apart[2], apart[0], apart[1], *turned)
    compared(f, torch.randn(0, 16), *weights, *turned)


def test_what_is_returned_has_memory_of_its_own():
    a, b, c = torch.randn(3, 8, 16)

    def f(x):
        k, v = F.linear(x, a), F.linear(x, b)
        return k, v.unflatten(-1, (2, 4)).transpose(0, 1), F.linear(x, c).relu()

    compiled = torchbolt.compile(f)
    x = torch.randn(5, 16)
    with torch.no_grad():
        k, v, other = compiled(x)
    storages = {t.untyped_storage().data_ptr() for t in (k, v, other)}
    assert len(storages) == 3 and k.untyped_storage().nbytes() == k.nbytes
    torch.testing.assert_close((k, v, other), f(x))


def test_sizes_that_differ_between_calls():
    model = Layer()
    compiled = torchbolt.compile(model, dynamic=True)
    for rows in ((2, 7), (3, 5), (1, 1), (4, 9)):
        agrees(model, torch.randn(*rows, 32), compiled)


def test_equal_layers():
    class Layers(torch.nn.Sequential):
        def __init__(self):
            super().__init__(*[Layer() for _ in range(8)])

    plan = agrees(Layers(), torch.randn(2, 7, 32))
    assert plan.count("library linears ") == 16


def test_gradients():
    model, x = Layer(), torch.randn(2, 7, 32, requires_grad=True)
    compiled = torchbolt.compile(model)
    compiled(x).square().sum().backward()
    got = [p.grad.clone() for p in (x, *model.parameters())]
    for p in (x, *model.parameters()):
        p.grad = None
    model(x).square().sum().backward()
    torch.testing.assert_close(got, [p.grad for p in (x, *model.parameters())], rtol=1e-4, atol=1e-4)
