#!/usr/bin/env bash
# scripts/test.sh [pytest arguments]: every test, strictly: a failure inside the compiler fails the test instead of
# falling back to eager. What depends on the machine's instructions runs again as on narrower machines: all of the C++
# tests, and of the Python tests those of what is computed. Expects what scripts/setup.sh test prepares.
source "$(dirname "$0")/common.sh"

# What a narrower machine may compute differently; the nightly run takes all Python tests there. Products are not
# generated without vectors, so tests that no library computes them are for machines with AVX2.
tests_of_what_is_computed=(
  tests/end_to_end/test_operators.py tests/programs/test_attention_programs.py tests/fuzz
)
tests_of_products=(tests/end_to_end/test_conv.py tests/end_to_end/test_linear.py)
programs_on_narrower_machines=60

test_environment

step "building the C++ tests"
cmake --build build --target bolt_tests run_on_gpu emulated_gpu --parallel "$(build_jobs)"
machines=$(narrower_machines)
for isa in native $machines; do
  step "C++ tests ($isa)"
  as_machine "$isa" build/bin/bolt_tests --gtest_brief=1
done
step "Python tests (native)"
# Python's own checks of its memory: a read past an object's end crashes at once, not in one run of three.
PYTHONMALLOC=debug .venv/bin/python -m pytest -q tests "$@"
for isa in $machines; do
  step "Python tests of what is computed ($isa)"
  chosen=("${tests_of_what_is_computed[@]}")
  [[ $isa == scalar ]] || chosen+=("${tests_of_products[@]}")
  BOLT_FUZZ_CASES=$programs_on_narrower_machines \
    as_machine "$isa" .venv/bin/python -m pytest -q "${chosen[@]}" "$@"
done
step "all tests passed"
