# tests/end_to_end/test_large_results.py
"""Large results: where their memory comes from."""

import pytest
import torch

import torchbolt

N = 1 << 20  # 4 MB of float32


@pytest.fixture
def double():
    return torchbolt.compile(lambda x: x * 2 + 1)


def test_memory_of_a_dropped_result_is_used_again(double):
    x = torch.randn(N)
    double(x)
    result = double(x)
    address = result.data_ptr()
    del result
    assert double(x).data_ptr() == address


def test_results_held_do_not_share_memory(double):
    xs = [torch.full((N,), float(i)) for i in range(6)]
    held = [double(x) for x in xs]
    assert len({h.data_ptr() for h in held}) == len(held)
    for i, h in enumerate(held):
        assert torch.equal(h, torch.full((N,), 2.0 * i + 1))


def test_a_view_keeps_the_memory(double):
    x = torch.randn(N)
    double(x)
    part = double(x)[5:9]
    want = part.clone()
    for _ in range(4):
        double(x + 1)
    assert torch.equal(part, want)


def test_result_can_grow(double):
    x = torch.randn(N)
    double(x)
    result = double(x)
    result.resize_(2 * N)
    result.fill_(3)
    assert torch.equal(double(x), x * 2 + 1)
    assert bool((result == 3).all())
