# torchbolt/cli/probe.py
"""Says what is here: torchbolt and what it was built for, torch, the machine, devices, the disk cache, environment
variables that change something, and whether small programs really compile and give eager's results. The exit code is 1
if something that should work does not.
"""

from __future__ import annotations

import ctypes.util
import os
import pathlib
import platform
import shutil
import sys

import torch

from torchbolt import _C, _build, api, artifacts, environment, explanation
from torchbolt.cli import cache, measure, output

SUMMARY = "what is here and what works: torch, devices, compilers found, cache"
_COMPILERS = ("g++", "clang++", "nvcc")


def arguments(parser) -> None:
    parser.add_argument("--no-checks", action="store_true", help="compile nothing; only look")


def main(args):
    """(facts, text, exit code)."""
    facts = {
        "torchbolt": {"version": _build.version, "folder": os.path.dirname(api.__file__)},
        "torch": {"version": torch.__version__, "built_for": _build.torch_version, "cuda": torch.version.cuda},
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "machine": _machine(),
        "devices": _devices(),
        "compilers": {name: shutil.which(name) for name in _COMPILERS} | {"nvrtc": _nvrtc()},
        "cache": cache.facts(),
        "redis_client": _C._redis_client() or None,
        "environment": _environment(),
        "torchs_environment": environment.set_here(),
        "checks": {} if args.no_checks else {name: _checked(check) for name, check in _checks().items()},
    }
    return facts, _text(facts), 0 if all(check["works"] for check in facts["checks"].values()) else 1


def _environment() -> dict:
    """Variables of ours that are set; of the key only that it is, and of a server's address nothing secret."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("TORCHBOLT_")}
    if artifacts.KEY in ours:
        ours[artifacts.KEY] = "(set)"
    if (address := ours.get("TORCHBOLT_REMOTE_CACHE", "")) and "@" in address:
        ours["TORCHBOLT_REMOTE_CACHE"] = "redis://(login)@" + address.rpartition("@")[2]
    return ours


def _machine() -> dict:
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "code": _C._processor(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _devices() -> list[dict]:
    found = [{"device": "cpu", "name": _processor()}]
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        facts = torch.cuda.get_device_properties(i)
        capability = f"{facts.major}.{facts.minor}"
        found.append({"device": f"cuda:{i}", "name": facts.name, "capability": capability, "bytes": facts.total_memory})
    return found


def _pointwise(device):
    return lambda x: ((x * 2).tanh() + 1).sum(-1), torch.linspace(-1, 1, 512, device=device).reshape(8, 64)


def _product(device):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
    return model.eval().to(device), torch.linspace(-1, 1, 512, device=device).reshape(8, 64)


def _checks() -> dict:
    """Name -> what makes a function and its argument."""
    found = {}
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        found[f"pointwise and reductions on {device}"] = lambda device=device: _pointwise(device)
        found[f"products and norms on {device}"] = lambda device=device: _product(device)
    return found


@torch.no_grad()
def _checked(make) -> dict:
    """Whether it compiles, and gives eager's results."""
    try:
        fn, x = make()
        compiled = api.compile(fn)
        first_ms = measure.once(lambda: compiled(x))[1]
        api.wait()
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-4, atol=1e-4)
        eager = explanation.explain(fn)(x).eager_regions
        return {"works": not eager, "why": "; ".join(eager), "first_call_ms": first_ms}
    except Exception as error:
        return {"works": False, "why": f"{type(error).__name__}: {error}", "first_call_ms": None}


def _text(facts) -> str:
    torchs, machine = facts["torch"], facts["machine"]
    devices = [f"{d['device']} {d['name']}" for d in facts["devices"]]
    here = [
        ("torchbolt", f"{facts['torchbolt']['version']} in {facts['torchbolt']['folder']}"),
        ("torch", f"{torchs['version']} (built for {torchs['built_for']}), CUDA {torchs['cuda'] or 'none'}"),
        ("Python", f"{facts['python']['version']}, {facts['python']['executable']}"),
        ("machine", f"{machine['system']}; {machine['cores']} cores, {machine['threads']} threads"),
        ("instructions", f"{machine['instructions']} in torch's kernels; ours are for {machine['code']}"),
        *(("device", device) for device in devices),
        ("compilers", _compilers(facts["compilers"])),
        ("cache", cache.describe(facts["cache"])),
        ("shared cache", _shared(facts)),
        *((name, value) for name, value in facts["environment"].items()),
        *((name, said) for name, said in facts["torchs_environment"].items()),
    ]
    checks = [
        (name, f"{output.yes(check['works'])}{': ' if check['why'] else ''}{check['why']}"
         + (f" (first call {output.duration(check['first_call_ms'])})" if check["first_call_ms"] else ""))
        for name, check in facts["checks"].items()
    ]  # fmt: skip
    return output.section("Here", here) + ("\n" + output.section("Works", checks) if checks else "")


def _shared(facts) -> str:
    client = facts["redis_client"]
    if client is None:
        return "none: this build was made where hiredis (libhiredis-dev) was not installed"
    server = facts["environment"].get("TORCHBOLT_REMOTE_CACHE") or "none (TORCHBOLT_REMOTE_CACHE is not set)"
    return f"{server}, by {client}"


def _nvrtc() -> str | None:
    """The library that compiles for CUDA: the one beside torch, which its CUDA wheels bring, else the system's."""
    beside = pathlib.Path(torch.__file__).parents[1].glob("nvidia/*/lib/libnvrtc.so*")
    return next((str(file) for file in sorted(beside)), None) or ctypes.util.find_library("nvrtc")


def _compilers(found) -> str:
    there = [f"{name} {path}" for name, path in found.items() if path]
    return (", ".join(there) or "none") + "; none is needed but, on CUDA, nvrtc"
