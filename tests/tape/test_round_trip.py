# tests/tape/test_round_trip.py
"""The text of a recorded tape is read back as the tape it was: printed again it is the same, letter by letter.

Programs and models are compiled with a trace, which writes the text of each region's tape.
"""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
import torch

import torchbolt
from bench.models import MODELS, build
from torchbolt import _C


def tapes(folder: pathlib.Path) -> list[str]:
    return [file.read_text() for file in sorted(folder.glob("torchbolt_debug/*/*/1_recorded.txt"))]


def round_trip(text: str) -> None:
    again, report = _C._opt(text, ["-"])
    assert again == text and report == ""


def recorded(fn, *calls, tmp_path, **options) -> str:
    """Calls `fn` with each of `calls`: the texts of all its tapes, which have been through the reader."""
    torchbolt.reset()
    options["options"] = {"trace.enabled": True, "trace.debug_dir": str(tmp_path)}
    compiled = torchbolt.compile(fn, **options)
    for args in calls:
        compiled(*args)
    texts = tapes(tmp_path)
    assert texts, "nothing was recorded"
    for text in texts:
        round_trip(text)
    return "".join(texts)


def views_and_writes(x):
    y = x[1:, ::2].t()
    y.add_(1)
    a, b = x.split(1)
    x[0] = torch.cat([a, b]).sum(0)
    torch._foreach_mul_([a, b], [2.0, 3])
    return x.clone(), y


def arguments(x):
    i = torch.tensor([[0, 1], [1, 0]])
    y = torch.zeros_like(x, memory_format=torch.preserve_format)
    z = torch.full((2, 3), 0.5, dtype=torch.float64, device="cpu").to(torch.bfloat16)
    w = torch.div(x, 3, rounding_mode="floor") + x[i, :][:, 0] + torch.clamp(x, max=float("inf"))
    v = torch.where(x > 0, x, -torch.inf) * (2 + 1j)
    return y, z, w, v, torch.arange(3), x.sum(dim=(0, 1), dtype=torch.float64), x.new_empty(2).fill_(True)


def draws(x):
    own = torch.Generator().manual_seed(3)
    return x + torch.rand(2, 3, generator=own) + torch.randn(2, 3) + torch.rand(2, 3, generator=own)


def parts_without_gradients(x):
    y = x * 2
    with torch.no_grad():
        z = y + 1
        with torch.enable_grad():
            z = z * y
    return z.detach(), y.data.mul_(2)


def out_of_data(x):
    places = (x > 0).nonzero()
    return x[x > 0] * places.size(0), places + 1


def number_of_data(x):
    n = x.max()
    return torch.addcdiv(x, x, x + 5, value=n.item()), x * n.item()


def names_with_quotes(x):
    return torch.einsum("ij,kj->ik", x, x), torch.nn.functional.pad(x, (1, 1), mode="reflect")


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "fn, expected",
    [
        (views_and_writes, ["over %", "aten::split.Tensor(", "aten::_foreach_mul_.ScalarList([%"]),
        (arguments, ["memory_format=Preserve", "dtype=f64", 'rounding_mode="floor"', "[%", "None", "-inf", "complex("]),
        (draws, ["generator(0, cpu)"]),
        (parts_without_gradients, ["aten::mul"]),
        (out_of_data, ["data_sized", "data [0]"]),
        (number_of_data, ["aten::"]),
        (names_with_quotes, ['"ij,kj->ik"', "reflect"]),
    ],
)
def test_programs(fn, expected, tmp_path):
    with torch.no_grad():
        text = recorded(fn, (X.clone(),), (X.clone(),), tmp_path=tmp_path)
    for part in expected:
        assert part in text, text


def test_gradients_and_modes(tmp_path):
    x = X.clone().requires_grad_()
    text = recorded(parts_without_gradients, (x,), tmp_path=tmp_path)
    assert "requires_grad" in text and "mode no_grad\n" in text and "mode grad\n" in text


def test_inference_mode(tmp_path):
    with torch.inference_mode():
        assert "mode no_grad inference" in recorded(lambda x: x + 1, (X,), tmp_path=tmp_path)


def test_sizes_and_numbers_that_differ(tmp_path):
    def fn(x, n, scale):
        return x.reshape(-1, 3)[:n] * scale, x.expand(2, *x.shape), torch.full((n, x.size(0)), scale)

    calls = [(torch.ones(6 + 3 * i, 3), 2 + i, 0.5 + i) for i in range(4)]
    with torch.no_grad():
        text = recorded(fn, *calls, tmp_path=tmp_path)
    assert " is t" in text and " is n" in text and " is f" in text


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", [row.name for row in MODELS])
def test_models(name, grad, tmp_path):
    case = build(name, "test", torch.float32)
    torchbolt.reset()
    options = {"trace.enabled": True, "trace.debug_dir": str(tmp_path)}
    compiled = dataclasses.replace(case, model=torchbolt.compile(case.model, options=options))
    with torch.set_grad_enabled(grad):
        compiled()
    texts = tapes(tmp_path)
    assert texts
    for text in texts:
        round_trip(text)
