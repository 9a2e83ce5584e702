"""Mutated inputs that a kernel stores into: the caller's tensors, their views and the results equal eager's."""

import pytest
import torch

import torchbolt


def scale(x, y):
    x.mul_(2).add_(y)
    return x.sum()


def overlapping(x, y):
    x.mul_(2)
    return y + x[1:]


def swap(x, y):
    x_before = x.clone()
    x.copy_(y * 2)
    y.copy_(x_before + 1)
    return x - y


def cache(x, y):
    x[2:5] = y[2:5].exp()
    return x + 1


def rows(x, y):
    x.div_(x.sum(dim=1, keepdim=True))
    return y * 2


def across(x, y):
    x.copy_(x + x.t())
    return y.relu()


def chain(x, y):
    x.add_(1)
    y.mul_(x)
    x.sub_(y)


CASES = (scale, swap, cache, rows, across, chain)


def run(fn, inputs):
    out = fn(*inputs)
    return [out, *inputs] if out is not None else inputs


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "unaligned"])
def test_equals_eager(fn, layout):
    def make():
        torch.manual_seed(0)
        wide = torch.rand(2, 40, 80) + 0.5
        views = {
            "contiguous": wide[:, :32, :32].contiguous(),
            "transposed": wide[:, :32, :32].contiguous().transpose(1, 2),
            "strided": wide[:, :32, 1:65:2],
            "unaligned": wide.flatten()[1 : 1 + 2 * 32 * 32].view(2, 32, 32),
        }
        return wide, views[layout].unbind()

    wide, inputs = make()
    wanted = [t.clone() for t in run(fn, inputs)]
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        mine, own = make()
        for got, want in zip(run(compiled, own), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(mine, wide, rtol=1e-6, atol=1e-6)


def test_inputs_share_memory():
    def make():
        x = torch.arange(33.0)
        return x, x[:32]

    wanted = [t.clone() for t in run(overlapping, make())]
    compiled = torchbolt.compile(overlapping)
    for _ in range(3):
        for got, want in zip(run(compiled, make()), wanted, strict=True):
            assert torch.equal(got, want)


def test_failed_index_leaves_inputs_alone():
    @torchbolt.compile
    def fn(x, table, index):
        x.mul_(2)
        return table[index] + 1

    x, table = torch.ones(8), torch.randn(5, 8)
    for _ in range(2):
        fn(x, table, torch.tensor([0, 4]))
    assert torch.equal(x, torch.full((8,), 4.0))
    with pytest.raises(IndexError):
        fn(x, table, torch.tensor([0, 5]))
    assert torch.equal(x, torch.full((8,), 8.0)), "eager, which ran instead, doubles it once before it raises"
