#!/usr/bin/env bash
# scripts/ext.sh [CORE]: builds the Python extension against a core from `make core-dist`, into build-ext/python.
# Works offline with g++, cmake, torch and Python's headers; PYTHON=... chooses the Python (default: .venv's, python3).
source "$(dirname "$0")/common.sh"

core=${1:-}
if [[ -z $core ]]; then
  for core in .core/*.tar.*; do :; done
fi
[[ -e $core ]] || fail "no packed core: give one with CORE=<file>, or run make core-dist"
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo "$PWD/.venv/bin/python" || command -v python3)}
generator=()
command -v ninja > /dev/null && generator=(-G Ninja)

step "extension for $("$python" --version), core $core"
cmake "${generator[@]}" -B build-ext -DBOLT_UNITY=ON -DBOLT_CORE_PREBUILT="$(realpath "$core")" -DPython_EXECUTABLE="$python"
cmake --build build-ext --parallel "$(build_jobs)"
PYTHONPATH=build-ext/python "$python" -c 'import torchbolt; print("torchbolt", torchbolt.__version__, "imports")'
step "use it with PYTHONPATH=$PWD/build-ext/python"
