# tests/training/test_least_squares.py
"""Least squares within models and whole steps. What a library finds to be the rank decides whether there are residuals, which
is checked where it could be otherwise."""

import pytest
import torch
from step_scripts import assert_same, batches, net, state_of

import torchbolt


def solved(out, x):
    return torch.linalg.lstsq(x, out).solution.square().sum()


def of_fewer_equations(out, x):
    return torch.linalg.lstsq(out[:, :3].T, x[:, :3].T).solution.square().mean()


def with_residuals(out, x):
    found = torch.linalg.lstsq(out, x[:, :2], driver="gelsd")
    return found.solution.square().mean() + found.residuals.detach().mean()


@pytest.mark.parametrize("loss_of", [solved, of_fewer_equations, with_residuals])
def test_a_step_is_one_region(loss_of):
    def trained(wrap):
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.01)

        @wrap
        def step(x):
            loss = loss_of(model(x), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss.detach()

        return [step(x) for x, _ in batches(5)], state_of([model])

    eager = trained(lambda step: step)
    torchbolt.reset()
    assert_same(trained(torchbolt.compile), eager)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"], stats["regions"]) == (0, 0, 2)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("first_is_full", [True, False])
def test_ranks_that_differ(driver, first_is_full):
    torchbolt.reset()

    def program(a, b):
        solution, residuals, rank, _ = torch.linalg.lstsq(a * 2, b + 1, driver=driver)
        return solution * 2, residuals + 1, rank

    compiled = torchbolt.compile(program)
    full, b = torch.randn(6, 3), torch.randn(6, 2)
    lacking = full.clone()
    lacking[:, 2] = lacking[:, 1] if driver != "gels" else lacking[:, 2] + 1
    for i in range(6):
        a = full if (i % 2 == 0) == first_is_full else lacking
        for got, want in zip(compiled(a, b), program(a, b), strict=True):
            torch.testing.assert_close(got, want)
