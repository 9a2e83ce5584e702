# tests/end_to_end/test_linear.py
"""Linear layers through the whole road: our own kernels with fused epilogues, weights packed once and watched."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt
from bench import compare


def regions_of(compiled):
    return torchbolt.api.compiled_of(compiled)._regions()


def check(fn, *args, library_calls=0):
    """Equal to eager within twice its error against float64, three times over; returns the one region."""
    torchbolt.reset()
    with torch.no_grad():
        expected = fn(*args)
        double = fn.double() if isinstance(fn, nn.Module) else fn
        exact = double(*(a.double() for a in args))
        if isinstance(fn, nn.Module):
            fn.float()
        compiled = torchbolt.compile(fn, fullgraph=True)
        for _ in range(3):
            got = compiled(*args)
            assert got.dtype == expected.dtype and got.shape == expected.shape
            assert got.stride() == expected.stride()
            ours, eager = compare.max_error(got, exact), compare.max_error(expected, exact)
            # Long sums: a library that keeps many partial sums has smaller errors than ours by luck of its order.
            long = max(1.0, args[0].shape[-1] / 128)
            assert ours <= 2 * eager + long * compare.rounding_floor(exact, got.dtype)
    (region,) = regions_of(compiled)
    assert region["compiled"] and region["library_calls"] == library_calls
    return region


class Epilogue(nn.Module):
    def __init__(self, inputs, outputs, after, bias=True):
        super().__init__()
        self.linear, self.after = nn.Linear(inputs, outputs, bias=bias), after

    def forward(self, x, *rest):
        return self.after(self.linear(x), *rest)


ACTIVATIONS = {
    "none": lambda y: y,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "scaled_tanh": lambda y: torch.tanh(y) * 0.5 + 1,
    "clamped": lambda y: y.clamp(-0.5, 0.5),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)
        region = check(Epilogue(70, 130, ACTIVATIONS[name]), torch.randn(150, 70))
        assert region["kernels"] == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("m", [1, 2, 7, 31, 197])
@pytest.mark.parametrize("k, n", [(1, 2), (3, 17), (64, 64), (100, 33), (257, 300)])
def test_sizes(m, k, n):
    torch.manual_seed(0)
    check(Epilogue(k, n, torch.relu, bias=(m + n) % 2 == 0), torch.randn(m, k))


def test_residual_and_broadcasts():
    torch.manual_seed(0)
    x, same = torch.randn(2, 5, 24), torch.randn(2, 5, 40)
    for other in (same, torch.randn(5, 40), torch.randn(40), torch.randn(2, 1, 1), torch.randn(2, 5, 1)):
        region = check(Epilogue(24, 40, lambda y, r: F.relu(y + r)), x, other)
        assert region["kernels"] == 1


def test_inputs_of_any_layout():
    torch.manual_seed(0)
    layer = Epilogue(24, 40, F.gelu)
    x = torch.randn(4, 6, 48)
    for view in (x[:, :, :24], x[:, 1:4, 24:], x[::2, :, :24], x.transpose(0, 1)[:, :, 24:]):
        assert check(layer, view)["kernels"] == 1
    check(layer, x[:, :, ::2], library_calls=1)


TURNED = {
    "rows": lambda y: y.flip(0) * 3,
    "columns": lambda y: y.flip(1) * 3,
    "both": lambda y: y.flip(0, 1).relu(),
    "parts of rows": lambda y: y.reshape(2, 3, 24).flip(1).tanh(),
    "parts of columns": lambda y: y.reshape(6, 4, 6).flip(1).tanh(),
    "rows that become columns": lambda y: y.t().flip(0).exp(),
    "twice": lambda y: (y.flip(1).reshape(6, 4, 6) * 2).flip(0, 2),
    "turned by a right angle": lambda y: torch.rot90(y) * 2,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", TURNED)
def test_results_turned_round(name, dynamic):
    model = Epilogue(8, 24, TURNED[name])
    compiled = torchbolt.compile(model, dynamic=dynamic)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(6, 8)
            torch.testing.assert_close(compiled(x), model(x))


def test_result_read_twice_and_returned():
    torch.manual_seed(0)
    check(Epilogue(24, 24, lambda y: y + F.gelu(y)), torch.randn(9, 24))
    check(Epilogue(24, 24, lambda y: torch.softmax(y, -1) * y), torch.randn(9, 24))


def test_product_with_a_parameter():
    class Conv1D(nn.Module):  # GPT-2's layer: the weight lies [inputs, outputs]
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(20, 30)), nn.Parameter(torch.randn(30))

        def forward(self, x):
            return F.gelu(torch.addmm(self.bias, x, self.weight))

    torch.manual_seed(0)
    assert check(Conv1D(), torch.randn(11, 20))["kernels"] == 1


def test_what_stays_with_the_library():
    torch.manual_seed(0)
    weight = torch.randn(8, 16)
    check(lambda x, w: F.linear(x, w), torch.randn(4, 16), weight, library_calls=1)
    double = nn.Linear(16, 8).double()
    x = torch.randn(4, 16, dtype=torch.float64)
    with torch.no_grad():
        compiled = torchbolt.compile(double)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), double(x))
    assert regions_of(compiled)[0]["library_calls"] == 1


def test_changed_weights_are_packed_again():
    torch.manual_seed(0)
    layer, x = Epilogue(32, 48, torch.relu), torch.randn(5, 32)
    linear = layer.linear
    with torch.no_grad():
        compiled = torchbolt.compile(layer)

        def agrees():
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)

        agrees(), agrees()
        linear.weight.mul_(2)  # in place
        agrees()
        linear.weight.data = torch.randn(48, 32)  # other memory
        agrees()
        linear.weight = nn.Parameter(torch.randn(48, 32))  # another parameter
        agrees(), agrees()
        layer.load_state_dict({k: torch.randn_like(v) for k, v in layer.state_dict().items()})
        agrees()
        linear.bias.add_(1)
        agrees()


def test_two_instances_share_code_not_weights():
    torch.manual_seed(0)
    x = torch.randn(3, 16)

    def forward(layer, x):
        return F.silu(layer(x))

    layers = [nn.Linear(16, 16) for _ in range(3)]
    with torch.no_grad():
        compiled = torchbolt.compile(forward)
        for _ in range(3):
            for layer in layers:
                torch.testing.assert_close(compiled(layer, x), forward(layer, x), rtol=1e-5, atol=1e-5)
    assert len(regions_of(compiled)) == 1


@pytest.mark.parametrize("bias", [(1,), (4, 1), (4, 6), (1, 6), (6,)], ids=str)
def test_biases_of_other_sizes(bias):
    check(
        lambda x, w, b: F.linear(x, w, b).relu(),
        torch.randn(4, 8),
        torch.randn(6, 8),
        torch.randn(bias),
        library_calls=1,
    )
