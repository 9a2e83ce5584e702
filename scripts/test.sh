#!/usr/bin/env bash
# scripts/test.sh [pytest arguments]: every test, strictly: a failure inside the compiler fails the test instead of
# falling back to eager. Expects what scripts/setup.sh test prepares.
source "$(dirname "$0")/common.sh"

test_environment

step "building the C++ tests"
cmake --build build --target bolt_tests --parallel "$(build_jobs)"
step "C++ tests"
build/bin/bolt_tests --gtest_brief=1
step "Python tests"
# Python's own checks of its memory: a read past an object's end crashes at once, not in one run of three.
PYTHONMALLOC=debug .venv/bin/python -m pytest -q tests "$@"
step "all tests passed"
