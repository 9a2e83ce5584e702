# tests/ops/test_activation_gradients.py
"""Gradients of activations, softmax and dropout, called as autograd calls them."""

import pytest
import torch
from agree import FLOATS, check, lain_otherwise

import torchbolt

aten = torch.ops.aten

#: By name: of the gradient that arrives and of the tensor that is kept, which lies between -1 and 1 where it is a result.
OF_INPUT = {
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.25),
    "relu": lambda g, x: aten.threshold_backward(g, x, 0),
    "gelu": aten.gelu_backward,
    "gelu by tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "mish": aten.mish_backward,
    "elu": lambda g, x: aten.elu_backward(g, 1.3, 1.05, 0.7, False, x),
    "leaky relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "hardswish": aten.hardswish_backward,
    "hardsigmoid": aten.hardsigmoid_backward,
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -0.5, 0.75),
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1.5, 4),
    "prelu": lambda g, x: aten._prelu_kernel_backward(g, x, (x * 0 + 0.3)[:1]),
    "dropout": lambda g, x: aten.native_dropout_backward(g, x > 0, 1.25),
    "log sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, torch.exp(-x.abs())),
}
OF_RESULT = {
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "elu of its result": lambda g, y: aten.elu_backward(g, 1.3, 1.05, 0.7, True, y),
    "logit": lambda g, y: aten.logit_backward(g, y.abs() * 0.9 + 0.05),
    "logit between bounds": lambda g, y: aten.logit_backward(g, y.abs(), 0.2),
}
FORWARD = {
    "threshold": lambda x: aten.threshold(x, 0.1, 2.0),
    "celu": lambda x: aten.celu(x, 1.4),
    "prelu": lambda x: aten._prelu_kernel(x, x[:1] * 0 + 0.2),
    "hardshrink": lambda x: aten.hardshrink(x, 0.4),
    "softshrink": lambda x: aten.softshrink(x, 0.4),
    "logit": lambda x: aten.logit(x.abs() / (x.abs() + 1), 0.1),
    "log sigmoid": aten.log_sigmoid_forward,
    "safe softmax": lambda x: aten._safe_softmax(x.masked_fill(x.abs() < 0.1, float("-inf")), -1),
    "safe softmax of nothing": lambda x: aten._safe_softmax((x * 0 - float("inf")).nan_to_num(float("-inf")), 0),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", OF_INPUT | OF_RESULT)
def test_gradients(name, dtype):
    torch.manual_seed(0)
    g, x = torch.randn(5, 3, 7, dtype=dtype), torch.randn(5, 3, 7, dtype=dtype) * 2
    if name in OF_RESULT:
        x = x.tanh()
    fn = (OF_INPUT | OF_RESULT)[name]
    for (_, one), (_, other) in zip(lain_otherwise(g), reversed(list(lain_otherwise(x)))):
        check(fn, one, other)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FORWARD)
def test_activations_below_autograd(name, dtype):
    torch.manual_seed(0)
    check(FORWARD[name], torch.randn(4, 9, dtype=dtype) * 2)


EDGES = torch.tensor([-3.0, -3.001, -2.999, 3.0, 2.999, 3.001, 0.0, -0.0, 0.5, -0.5, 0.75, 0.25, 1.0, -1.0, 100, -100,
                      float("inf"), -float("inf"), float("nan")])  # fmt: skip


@pytest.mark.parametrize("name", OF_INPUT | OF_RESULT)
def test_edges(name):
    fn = (OF_INPUT | OF_RESULT)[name]
    compiled = torchbolt.compile(fn)
    g = torch.full_like(EDGES, 1.5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(g, EDGES), fn(g, EDGES), equal_nan=True)


def test_threshold_of_whole_numbers():
    x = torch.arange(-4, 5)
    check(lambda g, x: aten.threshold_backward(g, x, 1), x * 3, x)


@pytest.mark.parametrize("name", ["gelu", "silu", "threshold", "tanh"])
def test_a_gradient_of_one_number(name):
    """What the gradient of a sum is: one number, shown everywhere."""
    fn = (OF_INPUT | OF_RESULT)[name]
    check(lambda g, x: fn(g.expand(4, 6), x), torch.tensor(1.5), torch.randn(4, 6))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gated(dim, dtype):
    x = torch.randn(6, 4, 8, dtype=dtype)
    g = torch.randn_like(x.chunk(2, dim)[0])
    for _, each in lain_otherwise(x):
        check(lambda g, x: aten.glu_backward(g, x, dim), g, each)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim, dtype):
    torch.manual_seed(0)
    g, x = torch.randn(6, 5, 33, dtype=dtype), torch.randn(6, 5, 33, dtype=dtype) * 3
    for _, each in lain_otherwise(x):
        region = check(lambda g, y: aten._softmax_backward_data(g, y, dim, dtype), g, each.softmax(dim))
        assert region["kernels"] == 1
        region = check(lambda g, y: aten._log_softmax_backward_data(g, y, dim, dtype), g, each.log_softmax(dim))
        assert region["kernels"] == 1


def test_one_kernel_with_what_stands_beside():
    region = check(lambda g, x: aten.gelu_backward(g * 2 + x, x) * x.exp(), torch.randn(8, 16), torch.randn(8, 16))
    assert region["kernels"] == 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_written_by_hand(dtype):
    """In whatever order its factors stand, it is the one that ATen has: far out, at 0 and of infinities."""
    root = 2.0**0.5
    x = torch.cat(
        [torch.randn(500) * 3, torch.linspace(-15, 15, 200), torch.tensor([0.0, -0.0, torch.inf, -torch.inf])]
    )
    for fn in (
        lambda x: x * 0.5 * (1 + torch.erf(x / root)),
        lambda x: 0.5 * x * (torch.erf(x * (1 / root)) + 1),
        lambda x: x * (0.5 * (1.0 + torch.erf(x / root))),
        torch.nn.functional.gelu,
    ):
        check(lambda x: fn(x) * 1, x.to(dtype))
