# tests/end_to_end/test_halves.py
"""Products of half precision on a processor that has no instructions for them: ours, and no further from float64 than eager.

TORCHBOLT_ISA hides what this machine may have, for which a process of its own is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import json, sys
import torch, torchbolt
from torch import nn
from torch.nn import functional as F

dtype = getattr(torch, sys.argv[1])
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Products(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.transpose(-1, -2), -1) @ x


CASES = {
    "linear": (nn.Sequential(nn.Linear(33, 65), nn.GELU(), nn.Linear(65, 7)), (5, 33)),
    "one_row": (nn.Linear(64, 48), (1, 64)),
    "conv": (nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1)), (2, 3, 17, 19)),
    "depthwise": (nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Hardswish(), nn.Conv2d(16, 16, 3, groups=2)),
                  (2, 16, 9, 9)),
    "conv1d": (nn.Conv1d(6, 10, 5, padding=2, dilation=1), (2, 6, 40)),
    "transposed": (nn.ConvTranspose2d(6, 4, 2, 2), (1, 6, 5, 5)),
    "attention": (Attention(), (2, 12, 32)),
    "products": (Products(), (3, 9, 16)),
}
said = {}
for name, (model, sizes) in CASES.items():
    model = model.eval().to(dtype)
    x = torch.randn(sizes).to(dtype)
    compiled = torchbolt.compile(model, fullgraph=True)
    with torch.no_grad():
        eager = model(x)
        for _ in range(3):
            got = compiled(x)
        facts = torchbolt.explain(model)(x)
        exact = model.double()(x.double())
    assert got.dtype == dtype and got.shape == eager.shape and got.stride() == eager.stride(), name
    error, of_eager = ((t.double() - exact).abs().max().item() for t in (got, eager))
    said[name] = [error, of_eager, exact.abs().max().item(), facts.library_calls, facts.extern_calls]
print(json.dumps(said))
"""


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="this machine has no AVX2")
@pytest.mark.parametrize("dtype, step", [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_products_of_halves_without_instructions_for_them(dtype, step, tmp_path):
    environment = os.environ | {"TORCHBOLT_ISA": "avx2", "TORCHBOLT_STRICT": "1", "TORCHBOLT_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, dtype]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for name, (error, of_eager, largest, library, extern) in json.loads(ran.stdout).items():
        assert error <= 2 * of_eager + step * largest, (name, error, of_eager)
        if name not in (
            "transposed",
            "products",
        ):  # without constant weights, or a layout of ours, a library multiplies
            assert library == extern == 0, (name, library, extern)
