"""Numbers that differ from the first calls on, where something else differs too: an optimizer's first steps."""

from __future__ import annotations

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
        def __init__(self, by, parts):
            self.by, self.parts = by, parts

    def fn(x, scaled):
        return x * scaled.by + len(scaled.parts)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    x = torch.randn(3)
    for scaled in (Scaled(2, [1]), Scaled(3, [1, 2])):
        torch.testing.assert_close(compiled(x, scaled), fn(x, scaled))
    assert torchbolt.stats()["regions"] == 2
    torch.testing.assert_close(compiled(x, Scaled(4, [1, 2])), x * 4 + 2)
    assert torchbolt.stats()["regions"] == 3
