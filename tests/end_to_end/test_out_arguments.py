# tests/end_to_end/test_out_arguments.py
"""out= of tensors without elements, which operators resize: what they hold afterwards is a result like others."""

import pytest
import torch

import torchbolt


def of_a_list(x):
    joined = x.new_empty(0)
    torch.cat([x, x + 1], out=joined)
    part = joined.view(-1)
    torch.sum(joined, 0, out=x.new_empty(0))
    part.add_(1)
    return joined, joined.shape[0] * 2


def two_results(x):
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    return values * 2, indices


def given_back(x):
    return torch.linalg.vector_norm(x, dim=0, out=torch.empty(0)) + 1


def nobody_looks(x):
    torch.add(x, 1, out=torch.empty(0))
    return x * 2


def another_dtype(x):
    wide = torch.empty(0, dtype=torch.float64)
    torch.add(x, 1, out=wide)
    return wide


def of_elements(x):
    other = torch.empty(3)
    torch.add(x, 1, out=other)
    return other * 2


def of_unknown_size(x):
    where = torch.empty(0, dtype=torch.long)
    torch.nonzero(x > 0, out=where)
    return where + 1


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(
    ("fn", "breaks"),
    [(of_a_list, 0), (two_results, 0), (given_back, 0), (nobody_looks, 0), (another_dtype, 1), (of_elements, 1),
     (of_unknown_size, 1)],
)  # fmt: skip
def test_out_arguments(fn, breaks):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for rows in (3, 3, 4, 5, 4):
            x = torch.randn(rows, 4)
            got, want = compiled(x), fn(x)
            for g, w in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
                torch.testing.assert_close(g, w)
    assert torchbolt.stats()["eager_fallbacks"] == 0
    assert (torchbolt.stats()["graph_breaks"] > 0) == bool(breaks)


class Workspace(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.space = torch.empty(0)

    def forward(self, x):
        torch.mul(x, 2, out=self.space)
        return self.space + 1


def test_a_workspace_from_outside():
    module, twin = Workspace(), Workspace()
    compiled = torchbolt.compile(module)
    for rows in (3, 3, 4, 4):
        x = torch.randn(rows, 4)
        assert torch.equal(compiled(x), twin(x)) and torch.equal(module.space, twin.space)


def test_an_empty_tensor_that_is_filled_in_autocast():
    """What fills it has no casts of its own, so nor has what is recorded in its place."""

    def fn(c):
        torch.cat([c[:1], c[1:]], out=c.new_empty(0))
        return c.remainder(3)

    compiled = torchbolt.compile(fn)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(2):
            x = torch.arange(5).half() + i
            assert torch.equal(compiled(x), fn(x))
