# tests/cuda/test_emulated.py
"""The text of CUDA kernels, run on the processor thread by thread and compared with the reference executor.

tests/cuda/emulate is a driver and an NVRTC whose device is the processor; `run_on_gpu --emulate` is the tool that runs
kernels on a GPU, on it. So what blocks, threads, shared memory, exchanges and clusters make of a kernel's indices is
tried without one: in every way that the product may compile a kernel, with memory between pages that nobody may touch.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import multiprocessing
import os
import pathlib
import subprocess

import pytest
from test_nvrtc import HERE, Nvrtc

KERNELS = sorted([*HERE.glob("*.ir"), *HERE.glob("kernels/*.ir")])
RANDOM_GRAPHS = int(os.environ.get("BOLT_EMULATED_CASES", "40"))
FIRST_SEED = int(os.environ.get("BOLT_FUZZ_SEED", "0"))
# What is known to no kernel that is compiled: one element, what is no multiple of anything, more than a block has.
SIZES = "36,1,7,1003"


def _emulator() -> pathlib.Path:
    import torchbolt

    # It is never installed: beside the package that is imported from a build tree, else in the build tree of `make`.
    folders = [*torchbolt.__path__, HERE.parents[1] / "build" / "python" / "torchbolt"]
    found = [path for folder in folders if (path := pathlib.Path(folder, "bin", "emulated_gpu.so")).exists()]
    assert found, "the emulator is not built: cmake --build build --target emulated_gpu run_on_gpu"
    return found[0]


def _run(*arguments: str) -> str:
    tool = _emulator().parent / "run_on_gpu"
    done = subprocess.run([str(tool), f"--emulate={_emulator()}", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kernels():
    """All at once: so all are compiled by a few calls of the compiler."""
    said = _run(f"--sizes={SIZES}", *map(str, KERNELS))
    assert said.count("\nok ") == len(KERNELS)


def test_random_graphs():
    assert "WRONG" not in _run(f"--fuzz={FIRST_SEED}:{RANDOM_GRAPHS}")


# ---- what the emulator finds: one kernel each, of threads of 2 blocks of 64, on memory for 100 numbers


class Emulated:
    def __init__(self, text: str):
        self.library = ctypes.CDLL(str(_emulator()))
        code = Nvrtc(_emulator()).compile(text)
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.library.cuModuleLoadData(ctypes.byref(self.module), code) == 0
        assert self.library.cuModuleGetFunction(ctypes.byref(self.function), self.module, b"bolt_k") == 0

    def launch(self, blocks: int, threads: int, against_end: bool = True, last_first: bool = False):
        """The driver's answer, what it says of it, and what is in memory then."""
        self.library.emulate_as(int(against_end), int(last_first))
        memory, text = ctypes.c_uint64(), ctypes.c_char_p()
        assert self.library.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(400)) == 0
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        answer = self.library.cuLaunchKernel(self.function, blocks, 1, 1, threads, 1, 1, 0, None, arguments, None)
        values = list((ctypes.c_float * 100).from_address(memory.value))
        self.library.cuGetErrorString(answer, ctypes.byref(text))
        assert self.library.cuMemFree_v2(memory) == 0
        return answer, text.value.decode(), values


def launched(text: str, *arguments, **options):
    return Emulated(text).launch(*arguments, **options)


@pytest.fixture(scope="module")
def launch():
    """In a process of its own: the real NVRTC does not share one with a library that is named as the driver."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as process:
        yield lambda *arguments, **options: process.submit(launched, *arguments, **options).result()


def _kernel(body: str, attributes: str = "") -> str:
    return f'extern "C" __global__ void __launch_bounds__(64){attributes}\nbolt_k(float* x) {{\n{body}\n}}\n'


AT = "const int at = blockIdx.x * 64 + threadIdx.x;\n"
FOUND = {
    "read_behind": (AT + "x[0] = x[at];", "block 1 of 2, thread 36 of 64: read 0 bytes behind memory of 400 bytes"),
    "write_behind": (AT + "x[at] = 1;", "block 1 of 2, thread 36 of 64: wrote 0 bytes behind memory of 400 bytes"),
    "shared": ("__shared__ float t[64];\nt[threadIdx.x + 1] = 1;\nx[0] = t[0];", "thread 63 of 64: line 4 of the text"),
    "registers": ("float t[3] = {};\nt[threadIdx.x / 20] = 1;\nx[0] = t[0];", "thread 60 of 64: line 4 of the text"),
    "between": ("*reinterpret_cast<uint4*>(x + threadIdx.x) = {};", "an access between two multiples of its size"),
    "waits": ("if (threadIdx.x < 32) __syncthreads();\nelse __shfl_sync(~0u, threadIdx.x < 40, 0);", None),
    "stuck": (
        "if (threadIdx.x != 3) __shfl_sync(~0u, 1, 0);\nelse __syncthreads();",
        "no thread can go on: 31 wait for",
    ),
    "different": ("__shfl_xor_sync(~0u, 1, threadIdx.x < 7 ? 1 : 2);", "other lanes of the warp are at another one"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_wrong_is_found(name, launch):
    body, message = FOUND[name]
    answer, text, _ = launch(_kernel(body), 2, 64)
    if message is None:
        assert answer == 0, text
    else:
        assert answer == 700
        assert message in text, text


def test_reads_before_memory_are_found(launch):
    text = _kernel("x[0] = x[int(threadIdx.x) - 1];")
    assert "read 4 bytes before memory of 400 bytes, argument 0" in launch(text, 1, 64, against_end=False)[1]


def test_writes_into_what_alignment_leaves_over_are_found(launch):
    text = _kernel("if (threadIdx.x == 9) x[100] = 1;")
    assert "wrote beside memory of 400 bytes" in launch(text, 1, 64, against_end=False)[1]


def test_shared_memory_that_is_not_waited_for_shows_one_way_round_or_the_other(launch):
    text = "__shared__ float t[64];\nt[threadIdx.x] = threadIdx.x;\nx[threadIdx.x] = t[threadIdx.x ^ 1];"
    for last_first, without in [(False, slice(0, 64, 2)), (True, slice(1, 64, 2))]:
        answer, _, values = launch(_kernel(text), 1, 64, last_first=last_first)
        assert answer == 0
        assert all(v != v for v in values[without])


def test_a_block_of_a_cluster_is_not_read_once_it_has_ended(launch):
    body = "cluster_arrive();\ncluster_wait();\n__shared__ int t;\nword_of_block(place_in_block(&t, 0));"
    text = _kernel(body, " __cluster_dims__(2, 1, 1)")
    assert "block 1 of 2, thread 0 of 64: reads what a block shares that has ended" in launch(text, 2, 64)[1]
    assert launch(text, 3, 64)[0] == 1, "blocks that are no whole clusters"


def test_more_threads_than_the_bounds_are_refused(launch):
    assert launch(_kernel(""), 1, 96)[0] == 1
