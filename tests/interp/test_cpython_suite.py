# tests/interp/test_cpython_suite.py
"""CPython's own tests of the language, with every function run by our interpreter. The judge of plain execution."""

from __future__ import annotations

import importlib.util
import itertools
import pathlib
import subprocess
import sys

import pytest

# Some distributions leave Python's own tests out.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("test") is None or importlib.util.find_spec("test.test_grammar") is None,
    reason="this Python came without its test package",
)

MODULES = """test_grammar test_generators test_coroutines test_asyncgen test_with test_exceptions test_exception_group
test_scope test_funcattrs test_keywordonlyarg test_positional_only_arg test_named_expressions test_patma test_fstring
test_super test_descr test_property test_dataclasses test_enum test_contextlib test_functools test_itertools
test_collections test_dict test_list test_set test_iter""".split()
# Those of which every test agrees when it is compiled and called four times; `make nightly` runs all, for the list of those that
# do not (finalisers and weak references see a recording's references; frames, classes and pickles are not made again).
COMPILED = """test_yield_from test_asyncgen test_with test_scope test_super test_property test_contextlib test_fstring
test_named_expressions test_unpack_ex test_richcmp test_range test_float test_userdict test_reprlib""".split()


@pytest.mark.parametrize(
    "module, mode", [*itertools.product(MODULES, ["plain", "observed"]), *((module, "compiled") for module in COMPILED)]
)
def test_agrees_with_cpython(module, mode):
    runner = pathlib.Path(__file__).with_name("run_cpython_suite.py")
    done = subprocess.run(
        [sys.executable, str(runner), "--mode", mode, module], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
