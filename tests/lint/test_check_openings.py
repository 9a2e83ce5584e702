# tests/lint/test_check_openings.py
"""scripts/check_openings.py: which first lines it takes, and where it writes one."""

import pytest
from lint_scripts import load

check = load("check_openings")


@pytest.mark.parametrize(
    "name, text, good",
    [
        ("src/run/views.h", "// run/views.h\n// Views.", True),
        ("src/run/views.cpp", "// run/views.cpp: see views.h.", False),
        ("src/run/views.h", "// src/run/views.h", False),
        ("src/run/views.h", "// run/views.hpp", False),
        ("src/run/views.h", "#pragma once", False),
        ("bench/cpu.py", '# bench/cpu.py\n"""Measures."""', True),
        ("bench/cpu.py", '"""bench/cpu.py: measures."""', False),
        ("scripts/lint.sh", "#!/usr/bin/env bash\n# scripts/lint.sh [--fix]: formatting.", True),
        ("scripts/lint.sh", "#!/usr/bin/env bash", False),
        ("bench/__init__.py", "", True),
    ],
)
def test_the_first_line(name, text, good):
    assert check.opens(name, text.splitlines()) == good


@pytest.mark.parametrize(
    "before, after",
    [
        ("#pragma once", "// run/views.h|#pragma once"),
        ("// run/views.h: see views.h.|#pragma once", "// run/views.h|#pragma once"),
        ("// run/views.h: what is shown.|// And how.", "// run/views.h|// What is shown.|// And how."),
    ],
)
def test_a_line_is_written(before, after):
    lines = before.split("|")
    check.mend("src/run/views.h", lines)
    assert lines == after.split("|")
