#!/usr/bin/env bash
# scripts/tidy.sh: clang-tidy on the torch-free core. A build target, so that a second run looks only at what changed.
source "$(dirname "$0")/common.sh"

step "clang-tidy on the core"
PATH="$PWD/.venv/bin:$PATH"
cmake -G Ninja -B build-lint -DBOLT_EXTENSION=OFF -DBOLT_TESTS=OFF --log-level=WARNING
cmake --build build-lint --target tidy --parallel "$(nproc)" -- -k 0 # every finding at once
