# tests/interp/test_lines.py
"""Lines of instructions, as our own reader of co_linetable finds them, against co_lines()."""

import argparse
import contextlib
import dataclasses
import enum
import inspect
import types
import typing

import pytest


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@pytest.mark.parametrize("module", [argparse, contextlib, dataclasses, enum, inspect, typing], ids=lambda m: m.__name__)
def test_lines(lines, module):
    for code in codes(compile(inspect.getsource(module), module.__file__, "exec")):
        expected = [-1] * (len(code.co_code) // 2)
        for begin, end, line in code.co_lines():
            expected[begin // 2 : end // 2] = [-1 if line is None else line] * ((end - begin) // 2)
        assert lines(code) == expected, code.co_qualname
