# scripts/check_wheel.py
"""Checks a wheel, or installs it into a fresh environment: scripts/wheel.sh.

    check_wheel.py WHEEL                 size, and what its libraries ask of the system
    check_wheel.py --fresh FOLDER WHEEL  a new environment with the wheel, and torch from the running one

auditwheel says which Linux the wheel's symbols allow. To repair it is not asked: torch's own libraries would be foreign
ones to it, to be copied into the wheel. That nothing else is foreign is asked here.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tempfile
import venv
import zipfile

LARGEST_MB = 40

# The C and C++ runtimes that every Linux with torch has, and what torch brings (its OpenMP has a hash in its name).
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux-x86-64|ld-linux-aarch64)\.so\b.*")
TORCHS = re.compile(r"lib(torch|torch_cpu|torch_python|c10|gomp[-\w]*)\.so\b.*")
OURS = re.compile(r"libtorchbolt_core\.so")


def needed(library: pathlib.Path) -> list[str]:
    """Names of the libraries that it is linked with."""
    text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*?)\]", text)


def newest(library: pathlib.Path, prefix: str) -> tuple[int, ...]:
    """The newest version of the C (GLIBC) or C++ (GLIBCXX) library that it asks for."""
    text = subprocess.run(["readelf", "-V", library], capture_output=True, text=True, check=True).stdout
    versions = re.findall(rf"\b{prefix}_([\d.]+)", text)
    return max((tuple(map(int, v.split("."))) for v in versions), default=(0,))


def complaints(wheel: pathlib.Path):
    """What is wrong with it, and what it asks for as a last line on standard output."""
    size = wheel.stat().st_size / 1e6
    if size > LARGEST_MB:
        yield f"{size:.1f} MB are more than {LARGEST_MB}"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
        libraries = sorted(pathlib.Path(folder).rglob("*.so"))
        if len(libraries) < 2:
            yield f"has {len(libraries)} libraries, not the extension and the core"
        for library in libraries:
            for name in needed(library):
                if not any(kind.fullmatch(name) for kind in (SYSTEM, TORCHS, OURS)):
                    yield f"{library.name} needs {name}, which neither torch nor the C library brings"
        asked = [".".join(map(str, max(newest(lib, p) for lib in libraries))) for p in ("GLIBC", "GLIBCXX")]
        print(f"{wheel.name}: {size:.1f} MB; asks for torch, glibc {asked[0]} and GLIBCXX_{asked[1]}")


def allowed_by(wheel: pathlib.Path) -> str | None:
    """The platform that auditwheel gives it, in its words: manylinux_2_36_x86_64. None: no symbol decides."""
    command = [sys.executable, "-m", "auditwheel", "show", wheel]
    text = " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    found = re.search(r'constrains the platform tag to "(manylinux_\w+)"', text)
    return found and found[1]


def torch_and_its_needs() -> set[str]:
    """Names of torch's distribution and of those that it requires here."""
    found, waiting = set(), ["torch"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system
        found.add(name)
        waiting += [re.match(r"[\w.-]+", line)[0] for line in requires if "extra ==" not in line]
    return found


def link(name: str, target: pathlib.Path) -> None:
    """Links a distribution's files into another environment."""
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        there = target / top
        if not there.exists():
            there.symlink_to(distribution.locate_file(top))


def fresh(folder: pathlib.Path, wheel: pathlib.Path) -> None:
    """A new environment with the wheel."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = pathlib.Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    for name in torch_and_its_needs():
        link(name, packages)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)


def main(arguments: list[str]) -> int:
    if arguments[0] == "--fresh":
        fresh(pathlib.Path(arguments[1]), pathlib.Path(arguments[2]).resolve())
        return 0
    found = list(complaints(pathlib.Path(arguments[0])))
    if (allowed := allowed_by(pathlib.Path(arguments[0]))) is None:
        found.append("auditwheel finds no Linux that it is for")
    else:
        print(f"auditwheel: {allowed}")
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
