# tests/cli/test_wheel.py
"""scripts/check_wheel.py: what the libraries of a wheel may ask for, with this build's own as the example."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import zipfile

from torchbolt import _C

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("check_wheel", ROOT / "scripts" / "check_wheel.py")
check_wheel = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_wheel)


def is_allowed(name):
    return any(kind.fullmatch(name) for kind in (check_wheel.SYSTEM, check_wheel.TORCHS, check_wheel.OURS))


def test_this_build_asks_for_nothing_foreign():
    extension = pathlib.Path(_C.__file__)
    core = extension.parent / "libtorchbolt_core.so"
    for library in (extension, core):
        names = check_wheel.needed(library)
        assert names and all(map(is_allowed, names)), names
    assert not any(check_wheel.TORCHS.fullmatch(name) for name in check_wheel.needed(core))
    assert check_wheel.newest(core, "GLIBC") >= (2, 2)


def test_other_libraries_are_foreign():
    for name in ("libLLVM.so.19", "libz.so.1", "libzstd.so.1", "libcuda.so.1", "libtorch_other.so", "libcrypt.so.1"):
        assert not is_allowed(name), name
    for name in ("libc.so.6", "libgomp-a34b3233.so.1", "libtorch_cpu.so", "libstdc++.so.6", "ld-linux-x86-64.so.2"):
        assert is_allowed(name), name


def test_a_wheel_without_libraries_is_none(tmp_path):
    wheel = tmp_path / "torchbolt-0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("torchbolt/_C.so", (pathlib.Path(_C.__file__)).read_bytes())
    assert list(check_wheel.complaints(wheel)) == ["has 1 libraries, not the extension and the core"]


def test_licences_of_what_is_inside_are_said():
    """Of each archive that the core is linked with."""
    linked = re.findall(r"NAMES lib(\w+)\.a", "".join(file.read_text() for file in (ROOT / "cmake").glob("*.cmake")))
    assert {"z", "zstd", "hiredis"} <= set(linked)
    headings = re.findall(r"^(\w+)\n=+$", (ROOT / "LICENSES-inside.txt").read_text(), re.M)
    assert {"LLVM", *({"z": "zlib"}.get(name, name) for name in linked)} == set(headings)
    assert '"LICENSES-inside.txt"' in (ROOT / "pyproject.toml").read_text()


def test_torch_and_what_it_needs():
    found = check_wheel.torch_and_its_needs()
    assert {"torch", "sympy"} <= found and "torchbolt" not in found and "pytest" not in found


def test_auditwheel_says_which_linux_it_is_for(tmp_path):
    wheel = tmp_path / "torchbolt-0-cp311-cp311-linux_x86_64.whl"
    libraries = [pathlib.Path(_C.__file__), pathlib.Path(_C.__file__).parent / "libtorchbolt_core.so"]
    facts = {
        "METADATA": "Metadata-Version: 2.1\nName: torchbolt\nVersion: 0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n",
        "RECORD": "".join(f"torchbolt/{library.name},,\n" for library in libraries),
    }
    with zipfile.ZipFile(wheel, "w") as packed:
        for library in libraries:
            packed.write(library, f"torchbolt/{library.name}")
        for name, text in facts.items():
            packed.writestr(f"torchbolt-0.dist-info/{name}", text)
    newest = max(check_wheel.newest(library, "GLIBC") for library in libraries)
    assert check_wheel.allowed_by(wheel) == f"manylinux_{newest[0]}_{newest[1]}_x86_64"
