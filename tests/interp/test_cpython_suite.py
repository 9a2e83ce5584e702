"""CPython's own tests of the language, with every function run by our interpreter. The judge of plain execution."""

from __future__ import annotations

import importlib.util
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


@pytest.mark.parametrize("mode", ["plain", "observed"])
@pytest.mark.parametrize("module", MODULES)
def test_agrees_with_cpython(module, mode):
    runner = pathlib.Path(__file__).with_name("run_cpython_suite.py")
    done = subprocess.run(
        [sys.executable, str(runner), "--mode", mode, module], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
