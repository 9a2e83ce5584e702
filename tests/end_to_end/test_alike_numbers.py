# tests/end_to_end/test_alike_numbers.py
"""Numbers at places that are one but for an index: where two differ between calls, the others are not waited for."""

import random

import torch

import torchbolt


def recordings_of(fn, calls):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for args in calls:
        assert_same(compiled(*args), fn(*args))
    return torchbolt.stats()["recordings"]


def assert_same(ours, eager):
    torch.testing.assert_close(ours, eager)


def test_a_field_of_all_samples():
    """Replayed turns, of which a few end an episode: which, is another in each batch."""

    def fn(batch):
        places, rewards, ends = zip(*batch, strict=True)
        return torch.stack(places).sum(1) + torch.tensor(rewards) * (1 - torch.tensor(ends))

    draw = random.Random(0)
    sample = lambda: (torch.randn(3), draw.random(), float(draw.random() < 0.1))  # noqa: E731
    assert recordings_of(fn, [([sample() for _ in range(16)],) for _ in range(12)]) <= 4


def test_one_that_differs_says_nothing_of_the_others():
    def fn(x, scales):
        return x * scales[0] + x.sum(-1, keepdim=True) * scales[1] + scales[2]

    x = torch.randn(2, 3)
    assert recordings_of(fn, [(x, [float(i), 2.0, 3.0]) for i in range(2, 8)]) == 2
    calls = [[2.0, 5.0, 7.0], [3.0, 5.0, 7.0], [3.0, 6.0, 7.0], [3.0, 6.0, 8.0], [4.0, 7.0, 9.0]]
    assert recordings_of(fn, [(x, scales) for scales in calls]) == 3


def test_sizes_among_them():
    def fn(x, shape):
        return x.reshape(shape).sum(-1) * shape[1]

    shapes = [[2, 12, 2], [2, 6, 4], [4, 6, 2], [4, 2, 6], [6, 2, 4], [3, 4, 4]]
    recordings_of(fn, [(torch.randn(48), shape) for shape in shapes])
