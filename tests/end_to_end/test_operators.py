# tests/end_to_end/test_operators.py
"""Small functions through the whole road: results equal eager's, one entry, compiled, fused as expected."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt
from bench import compare


def views(x):
    return (x.view(4, 4, 4).transpose(0, 1).reshape(4, 16) + x)[:, 1:5]


CASES = {
    "relu": (lambda x: torch.relu(x * 2 + 1), (4, 16), 1),
    "softmax": (lambda x: torch.softmax(x, -1), (32, 100), 1),
    "column_sum": (lambda x: (x * 2).sum(0), (64, 100), 1),
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), (8, 64), 1),
    "views": (views, (4, 16), 1),
    "gelu": (lambda x: F.gelu(x) * torch.sigmoid(x), (4, 16), 1),
    "in_place": (lambda x: x.clone().add_(1).mul_(x), (4, 16), 1),
    "where": (lambda x: torch.where(x > 0, x, x.exp()), (4, 16), 1),
    "cat": (lambda x: torch.cat([x, x * 2], 1), (4, 16), 1),
    "inverse_hyperbolic": (lambda x: x.asinh() + torch.arccosh(1 + x * x) - x.tanh().atanh(), (4, 16), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name):
    fn, shape, kernels = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(shape)
    with torch.no_grad():
        expected = fn(x)
        exact = fn(x.double())
        compiled = torchbolt.compile(fn, fullgraph=True)
        for _ in range(3):
            got = compiled(x)
            assert got.dtype == expected.dtype and got.stride() == expected.stride()
            ours, eager = compare.max_error(got, exact), compare.max_error(expected, exact)
            assert ours <= 2 * eager + compare.rounding_floor(exact, got.dtype)
        regions = torchbolt.api.compiled_of(compiled)._regions()
    assert len(regions) == 1
    assert regions[0]["compiled"] and regions[0]["kernels"] == kernels


def test_module_shares_state_and_results():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).eval()
    x = torch.randn(4, 16)
    with torch.no_grad():
        expected = model(x)
        compiled = torchbolt.compile(model)
        assert isinstance(compiled, nn.Sequential)
        assert list(compiled.state_dict()) == list(model.state_dict())
        for _ in range(3):
            torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)


def test_unknown_mode_names_the_nearest():
    with pytest.raises(ValueError, match="max-autotune"):
        torchbolt.compile(lambda x: x, mode="max-autotun")


def of_one_element(x):
    one, row = (x * 2).sum().flatten(), x.sum(-1, keepdim=True) + 1
    return one.argmax(-1), row.argmax(-1), row.argmin(0), row.max(-1), row[:1].min(0)


def a_window_that_overlaps_is_written(x):
    windows = (x * 2).flatten().unfold(0, 3, 1)
    windows.add_(1)
    return windows * 0.5


def strides_of_a_result_of_any_size(x):
    chosen = x[x > 0]
    first = chosen[..., :2]
    chosen.unsqueeze_(0)
    return chosen, first


FOUND_BY_FUZZING = {
    "of_one_element": of_one_element,
    "padding a mask": lambda x: (F.pad((x > 0).any(-1), (1, 2), value=0.25), F.pad(x > 0, (1, 2), value=2)),
    "a_window_that_overlaps_is_written": a_window_that_overlaps_is_written,
    "strides_of_a_result_of_any_size": strides_of_a_result_of_any_size,
}


@pytest.mark.parametrize("name", FOUND_BY_FUZZING)
def test_found_by_fuzzing(name):
    fn = FOUND_BY_FUZZING[name]
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for rows in (4, 4, 7, 5):
        x = torch.randn(rows, 6)
        got, want = compiled(x), fn(x)
        torch.testing.assert_close(got, want)
        if isinstance(want, tuple):
            assert [t.stride() for t in got if isinstance(t, torch.Tensor)] == [
                t.stride() for t in want if isinstance(t, torch.Tensor)
            ]
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_a_number_made_of_a_truth_value_stays_a_float_where_operators_are_replayed():
    def fn(x, y):
        hot = F.one_hot(x.argmax(-1), x.shape[-1])
        y[1:] = y[:-1].clone()
        return hot + float(hot.sum() > 0)

    compiled, y = torchbolt.compile(fn), torch.randn(8, 6)
    for _ in range(3):
        x = torch.randn(6)
        torch.testing.assert_close(compiled(x, y), fn(x, y))


OF_A_NUMBER = (
    "movedim(0, -1)",
    "moveaxis(-1, 0)",
    "transpose(0, -1)",
    "swapaxes(0, -1)",
    "flip(0)",
    "softmax(0)",
    "sort(0).values",
)


@pytest.mark.parametrize("call", OF_A_NUMBER)
def test_dimension_0_of_a_number(call):
    fn = eval(f"lambda x: x.{call} * 2")
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        x = torch.randn(())
        torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.bool, torch.float32))
@pytest.mark.parametrize("call", ("all()", "any(0)", "all(-1, keepdim=True)", "any()"))
def test_what_any_and_all_give(call, dtype):
    fn = eval(f"lambda x: x.{call}")
    compiled = torchbolt.compile(fn)
    for fill in (0, 1, 2):
        x = torch.full((3, 4), fill).to(dtype)
        assert torch.equal(compiled(x), fn(x)) and compiled(x).dtype == fn(x).dtype


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("call", ("clamp(max=k)", "clamp(min=k)", "clamp(k, k)", "relu()", "neg().relu()", "clamp_(k)"))
def test_signs_of_zeros(call, dtype):
    fn = eval(f"lambda x, k: (x * 1).{call}")
    compiled = torchbolt.compile(fn, dynamic=True)
    x = torch.tensor([0.0, -0.0] * 9, dtype=dtype)
    for k in (0.5, 0.0, -0.0):
        assert torch.equal(compiled(x, k).signbit(), fn(x, k).signbit())
