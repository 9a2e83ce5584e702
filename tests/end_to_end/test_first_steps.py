# tests/end_to_end/test_first_steps.py
"""Numbers that differ from the first calls on, where something else differs too: an optimizer's first steps."""

from __future__ import annotations

import copy

import torch

import torchbolt


def steps(make, count=8):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(4, 4)) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = make(parameters)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    recordings = []
    torchbolt.reset()
    step = torchbolt.compile(optimizer.step)
    for _ in range(count):
        step()
        schedule.step()
        recordings.append(torchbolt.stats()["recordings"])
    assert torchbolt.stats()["eager_fallbacks"] == 0
    return recordings


def test_nothing_is_recorded_after_the_second_step():
    for make in (torch.optim.AdamW, torch.optim.Adam, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
        recordings = steps(make)
        assert recordings[1] == recordings[-1], recordings


def test_numbers_of_another_object_stay_what_they_are():
    class Scaled:
        def __init__(self, by, shifts):
            self.by, self.shifts = by, shifts

    def fn(x, scaled):
        return x * scaled.by + (2 if scaled.shifts else 1)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3)
    for scaled in (Scaled(2, False), Scaled(3, True)):
        torch.testing.assert_close(compiled(x, scaled), fn(x, scaled))
    assert torchbolt.stats()["regions"] == 2
    torch.testing.assert_close(compiled(x, Scaled(4, True)), x * 4 + 2)
    assert torchbolt.stats()["regions"] == 3


def recordings_of_steps(make, steps):
    torchbolt.reset()
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    x, y = torch.randn(16, 4).double(), torch.randn(16, 1).double()  # LBFGS's steps make small differences large
    runs, seen = [], []
    for compiled in (True, False):
        model = copy.deepcopy(start)
        optimizer = make(model.parameters())

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        def step(optimizer=optimizer, closure=closure):
            return optimizer.step(closure)

        run = torchbolt.compile(step) if compiled else step
        for _ in range(steps):
            before = torchbolt.stats()["recordings"]
            run()
            if compiled:
                seen.append(torchbolt.stats()["recordings"] - before)
        runs.append(list(model.parameters()))
    # Told that it is compiled, RAdam computes with its step as a tensor: in float32.
    torch.testing.assert_close(*runs, rtol=1e-3, atol=1e-5)
    assert torchbolt.stats()["eager_fallbacks"] == 0
    return seen


def test_steps_that_go_on_for_long():
    """RAdam takes another branch from the sixth step on; LBFGS another number of turns until its history is full."""
    assert sum(recordings_of_steps(torch.optim.RAdam, 30)[7:]) == 0
    assert sum(recordings_of_steps(lambda p: torch.optim.ASGD(p, lr=0.1), 30)[2:]) == 0
    lbfgs = lambda p: torch.optim.LBFGS(p, lr=0.01, max_iter=4, history_size=3)  # noqa: E731
    assert sum(recordings_of_steps(lbfgs, 9)[3:]) == 0
