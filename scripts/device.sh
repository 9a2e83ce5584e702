#!/usr/bin/env bash
# scripts/device.sh [COMMAND...]: builds and tests on a machine that has a GPU but neither network nor LLVM.
#
# Needs g++, cmake, a Python with torch, and a core packed elsewhere (`make core-dist` leaves it in .core/).
# Builds the extension against that core, runs the Python tests, then COMMAND (a benchmark, say). A failing step
# does not stop the next one; each writes its log to $OUT (default: out/), and the exit status tells.
source "$(dirname "$0")/common.sh"

out=${OUT:-out}
mkdir -p "$out"
python=${PYTHON:-python3}
failed=0

# logged NAME COMMAND...: runs it, keeps its output in $out/NAME.log.
logged() {
  local name=$1 started=$SECONDS status=0
  shift
  step "$name: $*"
  "$@" 2>&1 | tee "$out/$name.log" || status=$?
  step "$name: status $status, $((SECONDS - started)) s"
  ((status == 0)) || failed=1
  return "$status"
}

"$python" -c 'import platform, torch
print("Python", platform.python_version(), "torch", torch.__version__,
      torch.cuda.get_device_name() if torch.cuda.is_available() else "without GPU")' | tee "$out/machine.log"
logged ext env PYTHON="$python" make ext || exit 1

export PYTHONPATH=$PWD/build-ext/python PYTHONUNBUFFERED=1
logged tests env TORCHBOLT_STRICT=1 TORCHBOLT_CACHE_DIR="$(mktemp -d)" "$python" -m pytest -q || true
(($# == 0)) || logged command "$@" || true
exit "$failed"
