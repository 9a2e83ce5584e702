#!/usr/bin/env bash
# scripts/lint.sh [--fix]: formatting (clang-format, ruff), openings, layering, one definition of each name, limits of
# large classes, names of tests. scripts/tidy.sh runs clang-tidy.
source "$(dirname "$0")/common.sh"

mapfile -t cxx < <(git ls-files --cached --others --exclude-standard -- 'src/*' 'tools/*' 'tests/*' 'bench/*' |
  grep -E '\.(cpp|h|cu)$' | while read -r file; do [[ -e $file ]] && echo "$file"; done)

if [[ ${1:-} == --fix ]]; then
  clang-format-19 -i "${cxx[@]}"
  .venv/bin/python scripts/check_openings.py --fix
  .venv/bin/ruff check -q --fix .
  .venv/bin/ruff format -q .
  exit
fi

step "clang-format (${#cxx[@]} files)"
printf '%s\0' "${cxx[@]}" | xargs -0 -n 20 -P "$(nproc)" clang-format-19 --dry-run -Werror
step "ruff"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
step "names in the documents"
.venv/bin/python scripts/check_docs.py
step "openings"
.venv/bin/python scripts/check_openings.py
step "layering"
.venv/bin/python scripts/check_layers.py
step "one definition of each name"
.venv/bin/python scripts/check_definitions.py
step "limits of classes and of the map"
.venv/bin/python scripts/check_limits.py
step "names of Python tests"
.venv/bin/python scripts/check_test_names.py
step "lint is clean"
