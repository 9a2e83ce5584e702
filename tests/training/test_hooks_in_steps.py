# tests/training/test_hooks_in_steps.py
"""What somebody looks at in a step: hooks, gradients that are retained, anomalies, saved tensors."""

import pytest
import torch
import torch.nn.functional as F
from step_scripts import assert_same, batches, compared, net, sgd_with_momentum, state_of, stepping

import torchbolt


def hooked(register):
    def make():
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        register(model)
        return stepping(model, opt), (model, opt)

    return make


HOOKS = {
    "tensor": lambda model: model[0].weight.register_hook(lambda g: g * 2),
    "accumulated": lambda model: model[0].weight.register_post_accumulate_grad_hook(
        lambda p: [p.grad.mul_(3)] and None
    ),
    "module": lambda model: model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)),
    "module_before": lambda model: model[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)),
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks(name):
    compared(hooked(HOOKS[name]))


@pytest.mark.parametrize("name", ["tensor", "accumulated"])
def test_hooks_that_come_later(name):
    def run(wrap):
        step, parts = hooked(lambda model: None)()
        step = wrap(step)
        for i, (x, y) in enumerate(batches(8)):
            if i == 3:
                handle = HOOKS[name](parts[0])
            if i == 6:
                handle.remove()
            step(x, y)
        return state_of(parts)

    assert_same(run(torchbolt.compile), run(lambda step: step))


def test_a_hook_within_the_step():
    def make():
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.1)

        def step(x, y):
            opt.zero_grad()
            out = model(x)
            out.register_hook(lambda g: g * 2)
            loss = F.cross_entropy(out, y)
            loss.backward()
            opt.step()
            return loss.detach()

        return step, (model, opt)

    compared(make)


def test_gradients_of_what_is_no_leaf_are_retained():
    def make():
        model = net()

        def step(x, y):
            out = model(x)
            out.retain_grad()
            F.cross_entropy(out, y).backward()
            return out.grad

        return step, (model,)

    compared(make)


def test_anomaly_mode_and_hooks_for_saved_tensors():
    step, parts = sgd_with_momentum()
    step = torchbolt.compile(step)
    data = list(batches(8))
    packed = []
    with torch.autograd.set_detect_anomaly(False):
        for x, y in data[:3]:
            step(x, y)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            step(*data[3])
        assert packed
        with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
            step(data[4][0] * float("nan"), data[4][1])
