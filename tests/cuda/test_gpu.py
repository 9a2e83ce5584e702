# tests/cuda/test_gpu.py
"""CUDA kernels as the product compiles them (codegen/cuda/compile_plan.h), and their results where there is a GPU.

`run_on_gpu` (tests/cuda/run_on_gpu.cpp, `cmake --build build --target run_on_gpu`) reads the graphs of tests/cuda and
tests/loops and the kernels of tests/cuda/kernels. Without a GPU each is compiled for sm_80 and sm_90; with one, each
runs and is compared with the reference executor. scripts/gpu_kernels.sh does the same on a machine without pytest.
"""

from __future__ import annotations

import ctypes
import pathlib
import subprocess

import pytest
from test_nvrtc import HERE, nvrtc_library

FILES = sorted([*HERE.glob("*.ir"), *HERE.glob("kernels/*.ir"), *(HERE.parent / "loops").glob("*.ir")])
BENCHED = sorted((HERE.parents[1] / "bench" / "cuda").glob("*.ir"))


def _tool() -> str:
    import torchbolt

    found = [path for folder in torchbolt.__path__ if (path := pathlib.Path(folder, "bin", "run_on_gpu")).exists()]
    if not found:
        pytest.skip("run_on_gpu is not built")
    return str(found[0])


def _run(*arguments: str) -> str:
    done = subprocess.run([_tool(), f"--nvrtc={nvrtc_library()}", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _has_gpu() -> bool:
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


@pytest.mark.parametrize("path", FILES + BENCHED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_compiles_for_each_architecture(path):
    assert _run("--compile", str(path)).startswith("ok")


@pytest.mark.skipif(not _has_gpu(), reason="no CUDA device")
def test_results_on_the_device():
    assert "WRONG" not in _run(*map(str, FILES))


@pytest.mark.skipif(_has_gpu(), reason="there is a CUDA device")
def test_a_missing_driver_gives_one_clear_message():
    done = subprocess.run([_tool(), f"--nvrtc={nvrtc_library()}", str(FILES[0])], capture_output=True, text=True)
    assert done.returncode == 2
    assert "CUDA needs NVIDIA's driver" in done.stderr or "NVIDIA's driver" in done.stderr
