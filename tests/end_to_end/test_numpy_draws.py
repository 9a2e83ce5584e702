# tests/end_to_end/test_numpy_draws.py
"""Single numbers from numpy's generators are drawn within a region. A function that computes with more of them, and
with nothing of torch's, runs as a whole between two regions."""

import copy

import numpy as np
import pytest
import torch

import torchbolt


@pytest.fixture(autouse=True)
def start():
    torchbolt.reset()


def spans(shape, share, length=2, padding=None):
    """Masks of speech, as models of it draw them: many steps, none of which is torch's."""
    rows, columns = shape
    most = int(share * columns / length + np.random.rand(1).item())
    ends = padding.sum(-1).tolist() if padding is not None else [columns] * rows
    mask = np.zeros((rows, columns), dtype=bool)
    for row, end in enumerate(ends):
        begins = np.random.choice(np.arange(int(end) - length + 1), max(most, 1), replace=False)
        within = np.concatenate([begins + k for k in range(length)])
        mask[row, within] = True
    return mask


def masked(x, w, token, padding=None):
    h = x @ w
    mask = torch.tensor(spans(h.shape[:2], 0.5, padding=padding), dtype=torch.bool)
    h[mask] = token
    return (h * h).mean()


@pytest.mark.parametrize("padded", [False, True])
def test_masks_of_speech(padded):
    def losses(fn):
        torch.manual_seed(0)
        np.random.seed(0)
        for _ in range(4):
            x, w, token = (
                torch.randn(2, 10, 3),
                torch.randn(3, 4, requires_grad=True),
                torch.randn(4, requires_grad=True),
            )
            padding = torch.ones(2, 10) if padded else None
            loss = fn(x, w, token, padding)
            yield loss.detach(), *torch.autograd.grad(loss, (w, token))

    torch.testing.assert_close(list(losses(torchbolt.compile(masked))), list(losses(masked)))
    stats = torchbolt.stats()
    assert stats["regions"] <= 3 and stats["eager_fallbacks"] == 0, stats


def test_what_is_given_something_to_call_is_looked_into():
    def applied(f, x):
        return f(x) * np.random.choice([1])

    def fn(x, w):
        return applied(lambda t: (t @ w).tanh(), x)

    fast = torchbolt.compile(fn)
    for _ in range(3):
        x, w = torch.randn(3, 4), torch.randn(4, 4)
        torch.testing.assert_close(fast(x, w), fn(x, w))
    assert torchbolt.stats()["regions"] == 2


GENERATOR = np.random.default_rng(0)


def mixed(x, y, alpha):
    lam = np.random.beta(alpha, alpha) if alpha > 0 else 1.0
    order = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[order], lam * y + (1 - lam) * y[order], lam


def jittered(x, y, alpha):
    x = x * np.random.uniform(0.8, 1.2) + np.random.normal(loc=0, scale=alpha)
    return x + np.random.rand() - np.random.randn() * y.mean(), np.random.exponential(alpha) / 2


def of_another_generator(x, y, alpha):
    return x * GENERATOR.uniform(0, alpha) + GENERATOR.beta(alpha, 2) + GENERATOR.standard_normal() * y.mean()


def shifted(x, y, alpha):
    start = np.random.randint(0, 3)
    return x[start : start + 2] * y[np.random.randint(3)], start


def with_numbers_in_two_orders(x, y, alpha):
    first = np.random.gamma(alpha, 2.0)
    return x * np.random.laplace() + first, first + np.random.poisson(alpha + 3)


@pytest.mark.parametrize("fn", [mixed, jittered, of_another_generator, shifted, with_numbers_in_two_orders])
def test_single_numbers(fn):
    def results(call):
        torch.manual_seed(0)
        np.random.seed(0)
        GENERATOR.bit_generator.state = np.random.default_rng(7).bit_generator.state
        for i in range(7):
            x, y = torch.randn(5 + i % 3, 4), torch.randn(5 + i % 3)
            yield call(x, y, 0.5 + i % 2), copy.deepcopy(np.random.get_state()[1:]), str(GENERATOR.bit_generator.state)

    for got, want in zip(results(torchbolt.compile(fn)), list(results(fn)), strict=True):
        torch.testing.assert_close(got[0], want[0])
        assert list(got[1][0]) == list(want[1][0]) and got[1][1:] == want[1][1:] and got[2] == want[2]
    stats = torchbolt.stats()
    assert stats["graph_breaks"] == 0 and stats["eager_fallbacks"] == 0 and stats["recordings"] <= 3, stats


@pytest.mark.parametrize("generator", [np.random.mtrand._rand, GENERATOR], ids=["RandomState", "Generator"])
def test_what_failed_draws_the_same_again(generator):
    """Eager runs the call whose numbers are too many for an index, and draws what the region drew."""

    def fn(x, n):
        k = torch.nonzero(x > 0).shape[0]
        torch._check(k < n)
        return x * generator.normal(0, 1) + k, generator.uniform(0, 2)

    def states():
        return str(np.random.get_state()) + str(GENERATOR.bit_generator.state)

    compiled = torchbolt.compile(fn)
    for i in range(6):
        x = torch.randn(6).abs() * (-1 if i % 2 else 1)
        n = 7 if i != 3 else 0
        before = copy.deepcopy((np.random.get_state(), GENERATOR.bit_generator.state))
        outcomes = []
        for call in (fn, compiled):
            np.random.set_state(before[0])
            GENERATOR.bit_generator.state = before[1]
            try:
                outcomes.append((call(x, n), states()))
            except RuntimeError as error:
                outcomes.append((str(error), states()))
        if isinstance(outcomes[0][0], str):
            assert outcomes[1][0] == outcomes[0][0]
        else:
            torch.testing.assert_close(outcomes[1][0], outcomes[0][0])
        assert outcomes[1][1] == outcomes[0][1]


def test_another_generator_in_a_later_call():
    def fn(x, generator):
        return x + generator.random()

    compiled = torchbolt.compile(fn)
    for seed in range(4):
        x = torch.randn(3)
        want = fn(x, np.random.default_rng(seed))
        torch.testing.assert_close(compiled(x, np.random.default_rng(seed)), want)
    assert torchbolt.stats()["recordings"] == 1 and torchbolt.stats()["graph_breaks"] == 0
    torch.testing.assert_close(compiled(x, np.random.RandomState(1)), fn(x, np.random.RandomState(1)))
