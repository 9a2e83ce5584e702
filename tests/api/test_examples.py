# tests/api/test_examples.py
"""Each program of examples/ runs, where the packages that it imports are installed."""

from __future__ import annotations

import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.py"))
ALSO = {"trainer.py": {"accelerate"}, "peft_lora.py": {"accelerate"}}  # that an imported package asks for


def needed(file) -> set[str]:
    """Packages that a program imports."""
    found = set(ALSO.get(file.name, ()))
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        found |= {name.split(".")[0] for name in names}
    return found - set(sys.stdlib_module_names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example(file):
    missing = sorted(name for name in needed(file) if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    environment = os.environ | {"PYTHONMALLOC": "default", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert re.search(r"regions [1-9]\d*, recordings [1-9]", done.stdout), done.stdout


def test_all_are_listed():
    listed = re.findall(r"^\| `(\w+\.py)` \|", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(listed) == [file.name for file in FILES]
