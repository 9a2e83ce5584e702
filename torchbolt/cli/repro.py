# torchbolt/cli/repro.py
"""What bisect found -> a Python program that shows it and needs nothing of the target.

The operators stand in it as FX writes them. Inputs lie beside it (repro.pt, read with weights_only), because an error
may need just these numbers. Where the fault is not inside of one region, the program names the target instead.
"""

from __future__ import annotations

import os
import re

import torch

_ALONE = '''"""{head}

Run it: exit code 1 where the fault shows. {name}.pt beside it has the inputs.
"""

import pathlib
import sys

import torch
from torch import device, inf, nan  # noqa: F401  (names that FX writes)

import torchbolt

saved = torch.load(pathlib.Path(__file__).with_suffix(".pt"), weights_only=True)


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in saved["constants"].items():
            self.register_buffer(name, value)

{code}


part = Part()
with torch.no_grad():
    expected = part(*saved["inputs"])
    compiled = torchbolt.compile(part, options={{"measure": False}})
    got = [compiled(*saved["inputs"]) for _ in range(3)][-1]
worst = 0.0
for a, b in zip(expected, got, strict=True):
    a, b = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b))
    worst = max(worst, torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs()).max().item())
print("largest difference from eager:", worst)
sys.exit(worst > {allowed})
'''

_WHOLE = '''"""{head}"""

import subprocess
import sys

# The fault is not inside of one region, so the target itself is needed.
sys.exit(subprocess.run([sys.executable, "-m", "torchbolt", "bisect", {target!r}]).returncode)
'''


def kernels_of(plan: str) -> list[str]:
    """The texts of a plan's kernels."""
    return re.findall(r"^kernel @.*?^}$", plan, re.M | re.S)


def _head(target, facts) -> str:
    what = f"Found by `torchbolt bisect` in {target.name}: compiled, it {facts['outcome']} ({facts['why']})."
    if facts.get("without_pass"):
        what += f"\nRight without the pass {' or '.join(facts['without_pass'])} (TORCHBOLT_DISABLE_PASSES)."
    if facts.get("fusion"):
        what += f"\nBegins with fusion {facts['fusion']} (TORCHBOLT_FUEL)."
    return what


def write(file: str, target, facts) -> str:
    """The program's path."""
    if "part" not in facts:
        text = _WHOLE.format(head=_head(target, facts), target=target.name)
    else:
        gm, inputs = facts.pop("part")
        name = os.path.splitext(file)[0]
        constants = dict(gm.named_buffers())
        torch.save({"inputs": list(inputs), "constants": constants}, name + ".pt")
        code = "\n".join("    " + line if line else "" for line in gm.code.strip().splitlines())
        head = _head(target, facts)
        allowed = facts.get("tolerance", 0.0)
        text = _ALONE.format(head=head, name=os.path.basename(name), code=code, allowed=allowed)
    with open(file, "w") as out:
        out.write(text)
    return os.path.abspath(file)
