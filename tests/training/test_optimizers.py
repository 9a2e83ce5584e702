# tests/training/test_optimizers.py
"""Every optimizer of torch.optim, compiled: what it leaves is eager's, and nothing is recorded after the second step."""

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_flatten

import torchbolt

OPTIONS = {
    "Adadelta": [{}, {"foreach": True}, {"weight_decay": 0.1, "maximize": True}],
    "Adafactor": [{}, {"foreach": True}, {"weight_decay": 0.1, "maximize": True}],
    "Adagrad": [
        {},
        {"foreach": True},
        {"lr_decay": 0.1, "weight_decay": 0.1},
        {"lr_decay": 0.1, "weight_decay": 0.1, "foreach": True},
        {"lr_decay": 0.1, "weight_decay": 0.1, "maximize": True, "fused": True},
    ],
    "Adam": [
        {},
        {"foreach": True},
        {"fused": True},
        {"amsgrad": True, "maximize": True},
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "amsgrad": True, "fused": True},
    ],
    "AdamW": [
        {},
        {"foreach": True},
        {"fused": True},
        {"amsgrad": True, "foreach": True},
        {"maximize": True},
        {"amsgrad": True, "maximize": True, "fused": True},
    ],
    "Adamax": [{}, {"foreach": True}, {"weight_decay": 0.1}],
    "ASGD": [
        {},
        {"foreach": True},
        {"lambd": 0.1, "t0": 5, "weight_decay": 0.1},
        {"lambd": 0.1, "t0": 5, "weight_decay": 0.1, "maximize": True, "foreach": True},
    ],
    "NAdam": [{}, {"foreach": True}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "RAdam": [
        {},
        {"foreach": True},
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True, "foreach": True},
    ],
    "RMSprop": [{}, {"foreach": True}, {"centered": True, "momentum": 0.9}],
    "Rprop": [{}, {"foreach": True}],
    "SGD": [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "foreach": True},
        {"fused": True},
        {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1, "fused": True},
        {"momentum": 0.9, "nesterov": True, "maximize": True, "fused": True},
    ],
}
CASES = [(name, options) for name, all_options in OPTIONS.items() for options in all_options]


def rows(step, parameters, opt, batches):
    """What each step gives, and what is left."""
    losses = [step(x, y) for x, y in batches]
    states = [v for s in opt.state_dict()["state"].values() for v in s.values() if isinstance(v, torch.Tensor)]
    return losses, [p.detach().clone() for p in parameters], states


def trained(make_optimizer, wrap, steps=20, whole=True, dtype=torch.float32):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 4)).to(dtype)
    opt = make_optimizer(model)
    data = [(torch.randn(8, 16).to(dtype), torch.randint(0, 4, (8,))) for _ in range(steps)]
    update = opt.step if whole else wrap(opt.step)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        update()
        opt.zero_grad()
        return loss.detach()

    recordings = []

    def noted(x, y, run=wrap(step) if whole else step):
        result = run(x, y)
        recordings.append(torchbolt.stats()["recordings"])
        return result

    return rows(noted, list(model.parameters()), opt, data), recordings


def tensors_of(tree):
    return [t.double() for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor)]


def check(make_optimizer, whole=True, first=2, exactly=False):
    eager, _ = trained(make_optimizer, lambda fn: fn, whole=whole)
    torchbolt.reset()
    ours, recordings = trained(make_optimizer, torchbolt.compile, whole=whole)
    if exactly:
        # A centered variance is a difference of nearly equal numbers: who is off, doubles tell, tensor by tensor.
        exact, _ = trained(make_optimizer, lambda fn: fn, whole=whole, dtype=torch.float64)
        for a, b, c in zip(tensors_of(ours), tensors_of(eager), tensors_of(exact), strict=True):
            assert (a - c).abs().max() <= 2 * (b - c).abs().max() + 1e-6 * c.abs().max()
    else:
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert recordings[first - 1] == recordings[-1], recordings
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o) or 'plain'}" for n, o in CASES])
def test_within_a_step(name, options):
    make = lambda model: getattr(torch.optim, name)(model.parameters(), lr=1e-2, **options)  # noqa: E731
    check(make, exactly="centered" in options)
    assert torchbolt.stats()["graph_breaks"] == 0


@pytest.fixture
def used_torch_compile(monkeypatch):
    """Whoever has used torch.compile finds parts of torch.optim disabled, which is for its own recording alone."""
    adam = sys.modules["torch.optim.adam"]
    for owner, name in (
        (torch.optim.Adam, "_init_group"),
        (adam, "_fused_adam"),
        (torch.optim.LBFGS, "step"),
        (torch.optim.SparseAdam, "step"),
    ):
        monkeypatch.setattr(owner, name, torch._dynamo.disable(getattr(owner, name)))


@pytest.mark.parametrize("fused", [False, True])
def test_beside_torch_compile(fused, used_torch_compile):
    check(lambda model: torch.optim.Adam(model.parameters(), lr=1e-2, fused=fused))
    assert torchbolt.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam"])
def test_steps_beside_torch_compile(name, used_torch_compile):
    torch.manual_seed(1)
    table = nn.Embedding(8, 4, sparse=name == "SparseAdam")
    opt = getattr(torch.optim, name)(table.parameters(), lr=0.1)

    def closure():
        opt.zero_grad()
        loss = table(torch.tensor([1, 3])).square().sum()
        loss.backward()
        return loss

    step = torchbolt.compile(lambda: opt.step(closure))
    for _ in range(3):
        step()
    assert torchbolt.stats()["regions"] and not any("disabled" in why for why in torchbolt.stats()["break_reasons"])


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o) or 'plain'}" for n, o in CASES])
def test_by_itself(name, options):
    check(lambda model: getattr(torch.optim, name)(model.parameters(), lr=1e-2, **options), False)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "Adamax", "RAdam"])
@pytest.mark.parametrize("foreach", [False, True])
def test_what_the_number_of_the_step_decides_is_as_exact_as_in_eager(name, foreach):
    """1 - 0.999**step has half of float32's digits left."""

    def run(wrap, dtype):
        values = torch.Generator().manual_seed(1)
        parameter = nn.Parameter(torch.zeros(50, dtype=dtype))
        opt = getattr(torch.optim, name)([parameter], lr=1e-2, foreach=foreach)
        step = wrap(opt.step)
        for _ in range(2):
            parameter.grad = torch.randn(50, generator=values).to(dtype)
            step()
        return parameter.detach().double()

    exact = run(lambda step: step, torch.float64)
    ours, eagers = (((run(w, torch.float32) - exact) / exact).abs().max() for w in (torchbolt.compile, lambda s: s))
    assert ours <= 2 * eagers


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["ASGD", "RAdam", "Adafactor"])
def test_doubles_and_complex_numbers(name, foreach):
    """What torch.optim decides by a number, a program computes: in doubles that is eager's to the last digits."""

    def run(wrap):
        values = torch.Generator().manual_seed(1)
        dtypes = (torch.float64, torch.float64 if name == "Adafactor" else torch.complex128)
        parameters = [nn.Parameter(torch.randn(5, 3, dtype=dtype, generator=values)) for dtype in dtypes]
        parameters.append(nn.Parameter(torch.randn(7, dtype=torch.float64, generator=values)))
        opt = getattr(torch.optim, name)(parameters, lr=1e-1, foreach=foreach)
        step = wrap(opt.step)
        for _ in range(12):
            for p in parameters:
                p.grad = torch.randn(p.shape, dtype=p.dtype, generator=values)
            step()
        return [p.detach() for p in parameters], opt.state_dict()["state"]

    torch.testing.assert_close(run(torchbolt.compile), run(lambda step: step), rtol=1e-12, atol=1e-12)
    assert (torchbolt.stats()["recordings"], torchbolt.stats()["graph_breaks"]) == (2, 0)


def test_a_second_moment_that_is_too_large_for_the_first_steps():
    """RAdam does not look at it then."""

    def run(wrap):
        parameter = nn.Parameter(torch.zeros(4))
        opt = torch.optim.RAdam([parameter], lr=1e-30)
        step = wrap(opt.step)
        for _ in range(4):
            parameter.grad = torch.full((4,), 1e30)
            step()
        return parameter.detach()

    assert torch.isfinite(run(lambda step: step)).all()
    torch.testing.assert_close(run(torchbolt.compile), run(lambda step: step))


def test_parameters_of_many_forms():
    """Each form had programs of its own where Adafactor's decisions ended regions, up to a limit."""
    torch.manual_seed(1)
    parameters = [nn.Parameter(torch.randn(*[2 + i % 5] * (1 + i % 3))) for i in range(40)]
    opt = torch.optim.Adafactor(parameters)
    step = torchbolt.compile(opt.step)
    for _ in range(4):
        for p in parameters:
            p.grad = torch.randn_like(p)
        step()
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["graph_breaks"], stats["eager_fallbacks"]) == (2, 0, 0)


def two_groups(model, optimizer=torch.optim.AdamW):
    return optimizer(
        [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[2].parameters(), "weight_decay": 0.0}], lr=1e-2
    )


def test_groups():
    check(two_groups)


def test_a_learning_rate_that_is_a_tensor():
    check(lambda model: torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-2), foreach=False))


def test_muon():
    """Its orthogonalization computes in bfloat16, so little can be said after many steps."""
    make = lambda model: torch.optim.Muon([model[0].weight, model[2].weight], lr=1e-2)  # noqa: E731
    (_, eager, _), _ = trained(make, lambda fn: fn, steps=2)
    (_, ours, _), _ = trained(make, torchbolt.compile, steps=2)
    torch.testing.assert_close(ours, eager, rtol=5e-2, atol=2e-3)


def test_an_optimizer_with_a_closure():
    def run(wrap):
        torch.manual_seed(1)
        model = nn.Linear(4, 2)
        opt = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        x, y = torch.randn(8, 4), torch.randn(8, 2)

        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        step = wrap(lambda: opt.step(closure).detach())
        return [step() for _ in range(5)], [p.detach().clone() for p in model.parameters()]

    torch.testing.assert_close(run(torchbolt.compile), run(lambda fn: fn), rtol=1e-4, atol=1e-5)
