# tests/device/test_cuda_ways.py
"""Ways of libraries on CUDA: products at once, products that end in a gelu, attention and schedules as measured.

Needs a CUDA device. Results are compared with float64, and may be twice as far from that as eager's.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchbolt

HALVES = [torch.bfloat16, torch.float16]


class Layer(nn.Module):
    def __init__(self, width=256, keys=64, inner=512, heads=4, bias=False):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, n, bias) for n in (width, keys, keys))
        self.o = nn.Linear(width, width, bias)
        self.gate, self.up, self.down = (
            nn.Linear(width, inner, bias),
            nn.Linear(width, inner, bias),
            nn.Linear(inner, width),
        )
        self.heads = heads

    def forward(self, x):
        size = x.shape[-1] // self.heads
        q, k, v = (t.unflatten(-1, (-1, size)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def plans(compiled) -> str:
    return "".join(region["plan"] for region in torchbolt.api.compiled_of(compiled)._regions())


def check(model, x, compiled, calls=3):
    with torch.no_grad():
        exact = type(model)(*getattr(model, "made_of", ())).to(x.device, torch.float64)
        exact.load_state_dict(model.state_dict())
        want = exact(x.double())
        allowed = 2 * (model(x).double() - want).abs().max() + 1e-6
        for _ in range(calls):
            assert (compiled(x).double() - want).abs().max() <= allowed
    return plans(compiled)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("rows", [(1, 1), (2, 16), (1, 128), (4, 512)])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_layers(dtype, rows, mode):
    model = Layer().to("cuda", dtype)
    check(model, torch.randn(*rows, 256, device="cuda", dtype=dtype), torchbolt.compile(model, mode=mode), calls=5)


@pytest.mark.parametrize("bias", [False, True])
def test_weights_that_lie_side_by_side_are_one_matrix(bias):
    model = Layer(bias=bias).to("cuda", torch.bfloat16)
    model.made_of = (256, 64, 512, 4, bias)
    block = torch.empty(384, 256, device="cuda", dtype=torch.bfloat16)
    row = 0
    with torch.no_grad():
        for part in (model.q, model.k, model.v):
            rows = part.weight.shape[0]
            block[row : row + rows] = part.weight
            part.weight.data = block[row : row + rows]
            row += rows
    compiled = torchbolt.compile(model)
    x = torch.randn(1, 32, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        model(x), x[0].double() @ x[0].double().T  # cuBLAS gets its workspaces
    before = torch.cuda.memory_allocated()
    assert check(model, x, compiled).count("library joined ") >= 1
    assert torch.cuda.memory_allocated() - before < block.nbytes // 2, "the weights were copied"
    with torch.no_grad():
        model.k.weight.mul_(2)
        check(model, x, compiled)
        model.v.weight = nn.Parameter(torch.randn_like(model.v.weight))
        check(model, x, compiled)
        model.q.weight.data = model.q.weight.data.clone()
        check(model, x, compiled)


@pytest.mark.parametrize("turned", [False, True])
def test_weights_of_one_size_are_a_batch_wherever_they_lie(turned):
    model = Layer().to("cuda", torch.bfloat16)
    first, second = (model.v, model.k) if turned else (model.k, model.v)
    block = torch.empty(3, 64, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        block[0], block[2] = first.weight, second.weight
        first.weight.data, second.weight.data = block[0], block[2]
    x = torch.randn(1, 32, 256, device="cuda", dtype=torch.bfloat16)
    compiled = torchbolt.compile(model)
    assert "library linears " in check(model, x, compiled)
    with torch.no_grad():
        first.weight.data, second.weight.data = second.weight.data.clone(), first.weight.data.clone()
    check(model, x, compiled)


def check_ending(model, activation, x):
    """A product of the model's ends in it, of what is no number, too."""
    assert f'activation="{activation}"' in check(model, x, torchbolt.compile(model))
    compiled = torchbolt.compile(model)
    x[0, 0, 0] = float("nan")
    with torch.no_grad():
        assert compiled(x)[0, 0].isnan().all() and torch.equal(compiled(x).isnan(), model(x).isnan())


class Gelu(nn.Module):
    def __init__(self, by_hand=False):
        super().__init__()
        self.up, self.down, self.by_hand = nn.Linear(64, 256), nn.Linear(256, 64), by_hand

    def forward(self, x):
        x = self.up(x)
        if self.by_hand:
            x = 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))
        else:
            x = F.gelu(x, approximate="tanh")
        return self.down(x)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("rows", [(1, 1), (3, 7), (8, 512)])
def test_products_end_in_a_gelu(dtype, by_hand, rows):
    model = Gelu(by_hand).to("cuda", dtype)
    model.made_of = (by_hand,)
    check_ending(model, "gelu_tanh", torch.randn(*rows, 64, device="cuda", dtype=dtype))


class Relu(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256, bias=bias), nn.Linear(256, 64)

    def forward(self, x):
        return self.down(self.up(x).relu())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [(1, 1), (3, 7), (8, 512)])
def test_products_end_in_a_relu(dtype, bias, rows):
    model = Relu(bias).to("cuda", dtype)
    model.made_of = (bias,)
    check_ending(model, "relu", torch.randn(*rows, 64, device="cuda", dtype=dtype))


def test_a_relus_gradients_are_eagers():
    torch.manual_seed(0)
    model, x = Relu().to("cuda", torch.bfloat16), torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)
    compiled = torchbolt.compile(model)

    def gradients(call, model, x):
        return torch.autograd.grad(call(x).square().sum(), list(model.parameters()))

    want = gradients(model, model, x)
    wide = Relu().cuda().double()
    wide.load_state_dict(model.state_dict())
    exact = gradients(wide, wide, x.double())
    for _ in range(3):
        for got, eager, e in zip(gradients(compiled, model, x), want, exact, strict=True):
            assert (got - e).abs().max() <= 2 * (eager - e).abs().max() + 1e-6


SHAPES = [
    ((16, 12, 512, 64), (16, 12, 512, 64), False),
    ((1, 32, 128, 64), (1, 8, 128, 64), True),
    ((64, 3, 49, 32), (64, 3, 49, 32), False),
    ((1, 32, 1, 64), (1, 8, 1024, 64), False),
    ((2, 8, 4096, 40), (2, 8, 77, 40), False),
]


@pytest.mark.parametrize("queries, keys, causal", SHAPES)
def test_attention_is_measured_once(queries, keys, causal):
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=queries[1] != keys[1]) + 1

    q, k, v = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in (queries, keys, keys))
    exact = attention(*(t.double().repeat_interleave(queries[1] // t.shape[1], 1) for t in (q, k, v)))
    allowed = 2 * (attention(q, k, v).double() - exact).abs().max() + 1e-3
    options = {"measure": True}
    first = torchbolt.explain(attention, options=options)(q, k, v)
    again = torchbolt.explain(attention, options=options)(q, k, v)
    assert len(first.choices) == 1 and first.choices == again.choices
    assert (torchbolt.compile(attention, options=options)(q, k, v).double() - exact).abs().max() <= allowed
    with sdpa_kernel(SDPBackend.MATH):
        assert (torchbolt.compile(attention, options=options)(q, k, v).double() - exact).abs().max() <= allowed


AUTOTUNED = """
import sys, torch, torchbolt
torch.manual_seed(0)
x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
w = torch.nn.Linear(1024, 1024, device="cuda", dtype=torch.bfloat16)
f = lambda x: torch.softmax(torch.nn.functional.gelu(w(x)) * 2 + x, -1)
with torch.no_grad():
    e = torchbolt.explain(f, mode="max-autotune-no-cudagraphs")(x)
    y = torchbolt.compile(f, mode="max-autotune-no-cudagraphs")(x)
    torch.testing.assert_close(y.float(), f(x).float(), rtol=2e-2, atol=2e-2)
print(sorted(e.choices), float(y.double().sum()))
"""


def test_what_was_measured_is_kept_for_other_processes(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("TORCHBOLT_CACHE_DIR", str(tmp_path))
    said = [
        subprocess.run([sys.executable, "-c", AUTOTUNED], capture_output=True, text=True, check=True).stdout
        for _ in "12"
    ]
    assert said[0] == said[1] and "schedule" in said[0]
