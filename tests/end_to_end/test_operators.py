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
