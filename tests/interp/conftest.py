# tests/interp/conftest.py
"""Finds the interpreter's module: `_interp` (no torch) from BOLT_INTERP_DIR, else torchbolt._C."""

import os
import sys

import pytest


def _module():
    folder = os.environ.get("BOLT_INTERP_DIR")
    if folder:
        sys.path.insert(0, folder)
        import _interp

        return _interp
    import torchbolt._C

    return torchbolt._C


@pytest.fixture(scope="session", params=["plain", "observed"])
def run(request):
    """run(f, *args): f(*args) under the interpreter, in each of its two loops."""
    module = _module()
    return module._interp_run if request.param == "plain" else module._interp_run_observed


@pytest.fixture(scope="session")
def wrap():
    return _module()._interp_wrap


@pytest.fixture(scope="session")
def lines():
    return _module()._interp_lines


def outcome(call):
    """What a call did: ("value", result) or ("error", type, text, traceback lines, cause and context types)."""
    import traceback

    try:
        return ("value", call())
    except BaseException as error:
        lines = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        lines = [entry for entry in lines if entry[0] not in ("<lambda>", "call")]
        chain = (type(error.__cause__), type(error.__context__))
        return ("error", type(error), str(error), lines, chain)


@pytest.fixture(scope="session")
def same(run):
    """same(f, *args): f gives the same value, or the same exception with the same lines, as under CPython."""

    def check(function, *args, **kwargs):
        expected = outcome(lambda: function(*args, **kwargs))
        got = outcome(lambda: run(function, *args, **kwargs))
        assert got == expected
        return got

    return check
