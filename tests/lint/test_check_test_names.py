# tests/lint/test_check_test_names.py
"""scripts/check_test_names.py: which names of Python files clash."""

from lint_scripts import load

check = load("check_test_names")


def test_equal_names_are_found():
    assert check.complaints(["tests/ops/test_a.py", "tests/api/test_a.py", "tests/api/test_b.py"]) == [
        "tests/ops/test_a.py: its name is that of tests/api/test_a.py"
    ]
    assert len(check.complaints([f"tests/{folder}/rows.py" for folder in ("api", "ops", "tape")])) == 2


def test_others_are_let_through():
    assert not check.complaints(["tests/api/conftest.py", "tests/ops/conftest.py", "tests/ops/a.py", "tests/ops/b.py"])
