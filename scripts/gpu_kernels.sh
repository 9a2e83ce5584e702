#!/bin/sh
# scripts/gpu_kernels.sh
# Runs the kernel suite on this machine's CUDA device, from a folder that holds bin/run_on_gpu, its library beside
# bin, and the graphs. With `time`, the kernels of bench/cuda beside a copy; with `sanitize`, under
# compute-sanitizer.
#
#   scripts/gpu_kernels.sh BIN "tests/cuda/*.ir tests/loops/*.ir" [time "bench/cuda/*.ir"] [sanitize]
set -u
bin=$1
suite=$2
shift 2
nvrtc=$(python3 -c 'from torch import __file__ as f; import glob, os
print(*glob.glob(os.path.dirname(os.path.dirname(f)) + "/nvidia/cu13/lib"), end="")' 2>/dev/null)
export TORCHBOLT_CACHE_DIR=${TORCHBOLT_CACHE_DIR:-$(mktemp -d)}
"$bin" --nvrtc="$nvrtc" $suite
failed=$?
while [ $# -gt 0 ]; do
  case $1 in
    time) "$bin" --nvrtc="$nvrtc" --time $2 || failed=1; shift 2 ;;
    sanitize)
      for tool in memcheck racecheck; do
        compute-sanitizer --tool $tool --error-exitcode 9 "$bin" --nvrtc="$nvrtc" $suite | tail -5 || failed=1
      done
      shift ;;
  esac
done
exit $failed
