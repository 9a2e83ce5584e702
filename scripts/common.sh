# scripts/common.sh: what every script shares (sourced, never run).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# step TEXT: says what happens now and how long it has been.
step() { printf '\033[1m[%3ds] %s\033[0m\n' "$SECONDS" "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Parallel compilers: one per core, but never more than the memory holds (a file that includes ATen takes 1.5 GiB).
build_jobs() {
  local memory_kib cores
  memory_kib=$(awk '/MemAvailable/ {print $2}' /proc/meminfo)
  cores=$(nproc)
  local fit=$((memory_kib / 1572864))
  echo $((fit < 1 ? 1 : fit < cores ? fit : cores))
}

# What tests run in: the virtual environment, failures of the compiler as errors, and no kernels from earlier runs.
test_environment() {
  PATH="$PWD/.venv/bin:$PATH"
  export TORCHBOLT_STRICT=1
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  export TORCHBOLT_CACHE_DIR=$scratch/cache
}
