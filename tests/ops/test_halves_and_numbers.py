# tests/ops/test_halves_and_numbers.py
"""Half-precision tensors against numbers that no half is: which side of the number an element lies on is eager's answer."""

from __future__ import annotations

import pytest
import torch

import torchbolt

NO_GPU = not torch.cuda.is_available()

FUNCTIONS = {
    "less": lambda x, n: x < n,
    "less_or_equal": lambda x, n: x <= n,
    "greater": lambda x, n: x > n,
    "greater_or_equal": lambda x, n: x >= n,
    "equal": lambda x, n: x == n,
    "not_equal": lambda x, n: x != n,
    "reflected": lambda x, n: n < x,
    "where": lambda x, n: torch.where(x == n, 1, x),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "of_a_tensor": lambda x, n: x <= torch.tensor(n),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_between_halves(name, dtype):
    torchbolt.reset()
    numbers = (0.1, 0.3, 0.9, 1e-3, 3.3)
    x = torch.tensor([*numbers, *(-n for n in numbers), *(n * (1 + 2**-9) for n in numbers)]).to(dtype)
    for number in numbers:
        f = FUNCTIONS[name]

        def call(x, f=f, number=number):
            return f(x, number)

        compiled = torchbolt.compile(call)
        for _ in range(2):
            assert torch.equal(compiled(x), call(x)), number


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_that_differ_between_calls(dtype):
    torchbolt.reset()
    compiled, x = torchbolt.compile(lambda x, n: x < n), torch.tensor([0.1, 0.3, 0.9, 0.7]).to(dtype)
    for number in (0.1, 0.3, 0.9, 0.7, 0.1):
        assert torch.equal(compiled(x, number), x < number)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(NO_GPU, reason="no CUDA device"))]
)
def test_equal_products_differ_by_nothing(device, dtype):
    """Also where the difference could be one instruction that rounds only one of them: the gradient of abs is 0 there."""
    torch.manual_seed(0)
    x = torch.rand(300, device=device, dtype=dtype).repeat_interleave(2)
    mean, scale = x.mean(), x.std()

    def differences(x, mean, scale):
        y = (x - mean) * scale
        return y[1:] - y[:-1], y[1:] + -y[:-1]

    compiled = torchbolt.compile(differences)
    for _ in range(3):
        for result in compiled(x, mean, scale):
            assert torch.equal(result[::2], torch.zeros_like(result[::2]))
