# tests/cuda/test_nvrtc.py
"""CUDA C++ of loop kernels, without a GPU: the text is as it was, and NVRTC compiles every kernel for sm_90.

tests/cuda/*.ir are graphs; tests/cuda/golden/*.cu is what `bolt-opt --emit=cuda` makes of their kernels, behind the
prelude that all have in common (golden/prelude.cu). After a wanted change:

    BOLT_REFRESH_GOLDEN=1 python -m pytest tests/cuda
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
GRAPHS = sorted(path.stem for path in HERE.glob("*.ir"))
LOOPS = sorted(path.stem for path in (HERE.parent / "loops").glob("*.ir"))
MODELS = ["bert", "llama", "vit", "resnet50", "convnext", "t5", "mamba"]


class Nvrtc:
    def __init__(self, path: pathlib.Path):
        # It opens its table of built-in functions by name alone, and not every wheel says where that lies.
        for builtins in path.parent.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(builtins))
        self.lib = ctypes.CDLL(str(path))

    def _check(self, code: int):
        assert code == 0, f"NVRTC error {code}"

    def _bytes(self, program, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.lib, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def compile(self, text: str, architecture: str = "sm_90", result: str = "CUBIN") -> bytes:
        program = ctypes.c_void_p()
        self._check(self.lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None))
        try:
            options = [b"--gpu-architecture=" + architecture.encode(), b"--std=c++17"]
            failed = self.lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode()
            assert not failed, log + text
            assert not log.strip(), log
            return self._bytes(program, result)
        finally:
            self.lib.nvrtcDestroyProgram(ctypes.byref(program))


def nvrtc_library() -> pathlib.Path:
    found = [path for folder in sys.path for path in sorted(pathlib.Path(folder).glob("nvidia/*/lib/libnvrtc.so*"))]
    assert found, "the nvidia-cuda-nvrtc wheel is missing: pip install .[test]"
    return found[-1]


@pytest.fixture(scope="session")
def nvrtc() -> Nvrtc:
    return Nvrtc(nvrtc_library())


def _bolt_opt() -> str:
    import torchbolt

    # In a source checkout the package is two folders.
    found = [path for folder in torchbolt.__path__ if (path := pathlib.Path(folder, "bin", "bolt-opt")).exists()]
    assert found, "torchbolt is installed without bolt-opt"
    return str(found[0])


def emit(source: pathlib.Path | str, *options: str) -> str:
    """Of a file, or of a graph's text."""
    given = {"input": source} if isinstance(source, str) else {}
    done = subprocess.run(
        [_bolt_opt(), "--emit=cuda", *options, "-" if given else str(source)], capture_output=True, text=True, **given
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def split(text: str) -> tuple[str, str]:
    """Prelude, kernels: each kernel begins with a line that says how it runs."""
    at = text.index("\n// ", text.index("BOLT void into_half("))  # the last one of the prelude
    return text[: at + 1], text[at + 1 :]


def compare(text: str, golden: pathlib.Path):
    if os.environ.get("BOLT_REFRESH_GOLDEN"):
        golden.write_text(text)
    assert golden.exists(), f"no {golden.name}: run with BOLT_REFRESH_GOLDEN=1 and read it"
    assert text == golden.read_text(), "the generated text changed: see the head of this file"


@pytest.mark.parametrize("name", GRAPHS)
def test_golden(name, nvrtc):
    eager = "; numerics: eager" in (HERE / f"{name}.ir").read_text()
    text = emit(HERE / f"{name}.ir", *(["--numerics=eager"] if eager else []))
    assert "is not generated" not in text
    prelude, kernels = split(text)
    compare(prelude, GOLDEN / "prelude.cu")
    compare(kernels, GOLDEN / f"{name}.cu")
    assert b"bolt_" in nvrtc.compile(text)


def test_no_golden_file_is_left_over():
    assert sorted(path.stem for path in GOLDEN.glob("*.cu")) == sorted([*GRAPHS, "prelude"])


@pytest.mark.parametrize("name", ["points", "layer_norm"])
def test_accesses_are_wide(name, nvrtc):
    ptx = nvrtc.compile(emit(HERE / f"{name}.ir"), "compute_90", "PTX").decode()
    assert "ld.global.v4" in ptx
    assert "st.global.v4" in ptx
    assert "ld.local" not in ptx, "a value that should be in registers is not"


def test_small_types_of_rows_that_begin_between_accesses_are_stored(nvrtc):
    """Eight elements each: of booleans and bytes 8 bytes, of bfloat16 16."""
    text = emit(
        """
graph @ends(%x: f32[999, 33] cuda:0, %d: f64[999, 33] cuda:0) {
  %z = scalar() {dtype=f32, value=0.5}
  %b = ge(%x, %z)
  %h = cast(%d) {dtype=bf16}
  %i = cast(%d) {dtype=i8}
  return %b, %h, %i
}
""",
        "--passes=standard",
    )
    assert text.count("put_within(b") == 3
    ptx = nvrtc.compile(text, "compute_90", "PTX").decode()
    assert (ptx.count("st.global.v2.u32"), ptx.count("st.global.v4.u32")) == (2, 1)


REFUSED = {
    "epilogue": """
kernel @epilogue (out %b0: f32) space [4 d0, 8 d1] {
  %0 = acc f32
  store b0[8*d0 + d1] = %0
}""",
}
REASONS = {"epilogue": "it ends a contraction"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_generated_says_why(name, nvrtc):
    text = emit(REFUSED[name])
    assert f"// bolt_{name} is not generated: {REASONS[name]}" in text
    nvrtc.compile(text)


@pytest.mark.parametrize("name", LOOPS)
def test_kernels_of_the_planners_tests(name, nvrtc):
    nvrtc.compile(emit(HERE.parent / "loops" / f"{name}.ir"))


@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_models(name, nvrtc):
    import torch

    import torchbolt
    from bench.models import build

    case = build(name, "test", torch.float32)
    seen = torchbolt.explain(case.model)(*case.args, **case.kwargs)
    assert seen.graphs
    for graph in seen.graphs:
        text = emit(graph, "--passes=standard")
        assert "__global__" in text
        assert "is not generated" not in text
        nvrtc.compile(text)
