# tests/api/test_kept_plans.py
"""A plan that one program made is the next one's, whatever it is of, and does and tells the same."""

import os
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import torch, torchbolt
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(*(m for _ in range(16) for m in (nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Softmax(-1))))
x = torch.randn(4, 16)
"""
INFERENCE = """
compiled = torchbolt.compile(net)
with torch.no_grad():
    for _ in range(3):
        y = compiled(x)
    torch.testing.assert_close(y, net(x))
    told = torchbolt.explain(net)(x)
print(y.double().sum().item().hex(), told.graphs, told.plans, told.costs, told.kernels_before_fusion)
"""
STEP = """
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
@torchbolt.compile
def step():
    optimizer.zero_grad()
    loss = net(x).square().sum()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss
for _ in range(4):
    loss = step()
print(loss.item().hex(), [p.double().sum().item().hex() for p in net.parameters()])
"""
TRAINED = """
compiled = torchbolt.compile(net)
for _ in range(3):
    net.zero_grad()
    compiled(x).square().sum().backward()
print([p.grad.double().sum().item().hex() for p in net.parameters()])
"""


@pytest.fixture
def run(tmp_path):
    def call(script):
        env = os.environ | {"TORCHBOLT_CACHE_DIR": str(tmp_path / "cache"), "TORCHBOLT_LOGS": "cache"}
        code = HEAD + textwrap.dedent(script)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr.count("the plan is from disk")

    return call


@pytest.mark.parametrize("script", [INFERENCE, STEP, TRAINED], ids=["inference", "step", "trained"])
def test_the_next_program_has_it_from_disk(run, script):
    first, _ = run(script)
    second, kept = run(script)
    assert kept > 0
    assert second == first


def test_other_options_are_other_plans(run):
    run(TRAINED)
    _, kept = run("torchbolt.config.numerics = 'eager'\n" + TRAINED)
    assert kept == 0
