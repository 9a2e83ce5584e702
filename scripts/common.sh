# scripts/common.sh: what every script shares (sourced, never run).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What the caller's shell lets Python import beside an environment's own (another build of torchbolt, say) is neither built
# against nor tested.
unset PYTHONPATH

# step TEXT: says what happens now and how long it has been.
step() { printf '\033[1m[%3ds] %s\033[0m\n' "$SECONDS" "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Parallel compilers: one per core, but never more than the memory holds (a unit that includes ATen takes 1.5 GiB).
build_jobs() {
  local memory_kib cores
  memory_kib=$(awk '/MemAvailable/ {print $2}' /proc/meminfo)
  cores=$(nproc)
  local fit=$((memory_kib / 1572864))
  echo $((fit < 1 ? 1 : fit < cores ? fit : cores))
}

# as_machine ISA COMMAND...: runs it as on a machine with no more instructions: in our code, in torch's own kernels
# and in the libraries torch calls (narrower_machines.txt).
as_machine() {
  local isa=$1 variables=()
  shift
  if [[ $isa != native ]]; then
    read -ra variables < <(sed -n "s/^$isa //p" scripts/narrower_machines.txt) || fail "no instruction set $isa"
  fi
  env "${variables[@]}" "$@"
}

# The narrower machines that this one can be (src/codegen/cpu/target.cpp decides), and what it cannot, said aloud.
narrower_machines() {
  local isa
  for isa in $(sed '/^#/d; s/ .*//' scripts/narrower_machines.txt); do
    if TORCHBOLT_ISA=$isa build/bin/bolt_tests --gtest_filter=Targets.TheHostRunsItself > /dev/null 2>&1; then
      echo "$isa"
    else
      echo "left out: this machine does not run $isa" >&2
    fi
  done
}

# What tests run in: the virtual environment, failures of the compiler as errors, and no kernels from earlier runs.
test_environment() {
  PATH="$PWD/.venv/bin:$PATH"
  export TORCHBOLT_STRICT=1
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  export TORCHBOLT_CACHE_DIR=$scratch/cache
}
