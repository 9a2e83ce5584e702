# tests/training/test_fused_operators.py
"""Operators that change all parameters in one call, and GradScaler's: compiled they give what eager gives."""

from __future__ import annotations

import pytest
import torch

import torchbolt

SIZES = [(3, 4), (5,), (2, 3, 2)]


def lists(count, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    return [[torch.rand(s, generator=draw).add(0.1).to(dtype) for s in SIZES] for _ in range(count)]


def counts():
    return [torch.tensor(float(n)) for n in (1, 2, 7)]


ADAM = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}


def adam(operator, **options):
    def fn(p, g, m, v, top, **scaled):
        given = {**ADAM, "amsgrad": False, **options}
        operator(p, g, m, v, top if given["amsgrad"] else [], counts(), **given, **scaled)

    return fn


def sgd(first, **options):
    def fn(p, g, m, v, top, **scaled):
        given = {"weight_decay": 0.1, "momentum": 0.9, "lr": 1e-2, "dampening": 0.2, "nesterov": False, **options}
        buffers = m if given["momentum"] else []
        torch._fused_sgd_(p, g, buffers, maximize=True, is_first_step=first, **given, **scaled)

    return fn


def adagrad(p, g, m, v, top, **scaled):
    torch._fused_adagrad_(
        p, g, m, counts(), lr=1e-2, lr_decay=0.1, weight_decay=0.1, eps=1e-8, maximize=False, **scaled
    )


OPERATORS = {
    "adam": adam(torch._fused_adam_),
    "adam_amsgrad": adam(torch._fused_adam_, amsgrad=True, maximize=True),
    "adamw": adam(torch._fused_adamw_),
    "adamw_without_decay": adam(torch._fused_adamw_, weight_decay=0.0),
    "adamw_rate_is_a_tensor": adam(torch._fused_adamw_, lr=torch.tensor(1e-2)),
    "sgd": sgd(first=False),
    "sgd_first": sgd(first=True),
    "sgd_nesterov": sgd(first=False, nesterov=True, dampening=0.0),
    "sgd_plain": sgd(first=False, momentum=0.0, dampening=0.0),
    "adagrad": adagrad,
}
SCALES = {
    "plain": {},
    "scaled": {"grad_scale": 4.0, "found_inf": 0.0},
    "left_out": {"grad_scale": 4.0, "found_inf": 1.0},
}


def left(wrap, fn, scale, dtype):
    given = lists(5, dtype)
    scaled = {name: torch.tensor(value) for name, value in SCALES[scale].items()}
    wrap(fn)(*given, **scaled)
    return given


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", OPERATORS)
def test_optimizers(name, scale, dtype):
    want = left(lambda fn: fn, OPERATORS[name], scale, dtype)
    got = left(torchbolt.compile, OPERATORS[name], scale, dtype)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert torchbolt.stats()["eager_fallbacks"] == 0


@pytest.mark.parametrize("bad", [None, torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
def test_gradients_are_unscaled(dtype, bad):
    def run(wrap):
        gradients = lists(1, dtype)[0]
        if bad is not None:
            gradients[1][2] = bad
        found, inverse = torch.zeros(1), torch.tensor([0.25])
        wrap(lambda: torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse))()
        return gradients, found

    torch.testing.assert_close(run(torchbolt.compile), run(lambda fn: fn), equal_nan=True)


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize(("scale", "seen"), [(1024.0, 3), (1024.0, 4), (3e38, 4)])
def test_the_scale_is_updated(scale, seen, found):
    def run(wrap):
        given = torch.tensor([scale]), torch.tensor([seen], dtype=torch.int32)
        result = wrap(lambda: torch._amp_update_scale_(*given, torch.tensor([found]), 2.0, 0.5, 5))()
        return (result, *given)

    torch.testing.assert_close(run(torchbolt.compile), run(lambda fn: fn))


def test_a_scaler_around_compiled_steps():
    def run(wrap):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)

        def step(x):
            opt.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            scaler.step(opt)
            scaler.update()
            return scaler.get_scale()

        step, draw = wrap(step), torch.Generator().manual_seed(0)
        inputs = [torch.randn(3, 4, generator=draw) for _ in range(6)]
        inputs[3][0, 0] = torch.inf
        return [step(x) for x in inputs], [p.detach() for p in model.parameters()]

    torch.testing.assert_close(run(torchbolt.compile), run(lambda fn: fn), rtol=1e-4, atol=1e-5)
