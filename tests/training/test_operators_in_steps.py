# tests/training/test_operators_in_steps.py
"""Single operators that would leave a whole step to eager: in the loss of a step they are compiled, or around."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt

LOSSES = {
    "multi margin": lambda out, y: F.multi_margin_loss(out, y),
    "multilabel margin": lambda out, y: F.multilabel_margin_loss(out, y[:, None].expand(out.shape).contiguous()),
    "fractional pooling": lambda out, y: (
        F.fractional_max_pool3d(out.view(1, 1, 4, 4, 2), 1, output_size=(2, 2, 1), _random_samples=torch.ones(1, 1, 3) / 3)
        .square().mean()
    ),
    "quantised": lambda out, y: torch.fake_quantize_per_tensor_affine(out, 0.1, 0, -128, 127).square().mean(),
    "quantised by a tensor": lambda out, y: torch.fake_quantize_per_tensor_affine(
        out, torch.tensor(0.1), torch.tensor(0), -128, 127
    ).square().mean(),
    "quantised by channels": lambda out, y: torch.fake_quantize_per_channel_affine(
        out, torch.full((4,), 0.1), torch.zeros(4), 1, -128, 127
    ).square().mean(),
    "masked softmax": lambda out, y: torch._masked_softmax(out, out > 9, 1).square().sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_that_only_the_processors_kernels_describe(name):
    """One operator whose results nobody knew left the whole step to eager."""

    def trained(wrap):
        torch.manual_seed(1)
        model = nn.Linear(16, 4)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = LOSSES[name](model(x), y)
            loss.backward()
            opt.step()
            return loss.detach()

        step = wrap(step)
        data = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(4)]
        return [step(x, y) for x, y in data], [p.detach() for p in model.parameters()]

    torchbolt.reset()
    torch.testing.assert_close(trained(torchbolt.compile), trained(lambda step: step), rtol=1e-4, atol=1e-5)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def steps_of(loss):
    """Losses and parameters of four steps, compiled and eager; then the regions."""

    def trained(wrap):
        torch.manual_seed(1)
        model = nn.Linear(16, 4)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            opt.zero_grad()
            value = loss(model(x))
            value.backward()
            opt.step()
            return value.detach()

        compiled = wrap(step)
        return [compiled(torch.randn(8, 16)) for _ in range(4)], [p.detach() for p in model.parameters()], compiled

    *theirs, _ = trained(lambda step: step)
    *mine, compiled = trained(torchbolt.compile)
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    torchbolt.api.wait()
    assert torchbolt.stats()["eager_fallbacks"] == 0
    regions = torchbolt.api.compiled_of(compiled)._regions()
    assert all(region["compiled"] for region in regions)
    return regions


def test_an_operator_that_looks_at_its_data_is_compiled_around():
    """Quantiles look whether ranks are whole, which left the whole step to eager."""
    steps_of(lambda out: (out - torch.quantile(out, 0.5, dim=1, keepdim=True)).square().mean())
    assert set(torchbolt.stats()["break_reasons"]) == {"calls torch.autograd.graph._engine_run_backward"}


def test_complex_numbers_of_pythons_in_a_step():
    """Their conjugates in the backward pass are numbers, too."""
    steps_of(lambda out: (out * (1 + 2j)).abs().mean() + ((3 - 1j) * out).real.square().mean())
    assert torchbolt.stats()["graph_breaks"] == 0


def test_composites_in_a_step():
    steps_of(lambda out: torch.linalg.vander(out[:, 0], N=4).mean() + out.nanmean())
    assert torchbolt.stats()["graph_breaks"] == 0


def rows_one_after_another(out):
    """As what is recurrent fills what it gives: nothing of it has a history yet."""
    steps, last = torch.empty(4, *out.shape), torch.zeros_like(out)
    for t in range(4):
        last = torch.tanh(0.5 * last + out * (t + 1))
        steps[t] = last
    return steps.square().mean()


def views_of_views(out):
    kept = torch.zeros(out.shape[0], 2, out.shape[1])
    kept.view(-1, out.shape[1])[1::2].add_(out)
    kept.transpose(0, 1)[0, 1:] = out[1:].sin()
    return kept.square().mean() + kept.sum(1).sin().mean()


@pytest.mark.parametrize("loss", [rows_one_after_another, views_of_views], ids=lambda loss: loss.__name__)
def test_parts_that_are_written_of_what_has_no_history(loss):
    steps_of(loss)
    assert torchbolt.stats()["graph_breaks"] == 0
