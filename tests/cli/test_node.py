# tests/cli/test_node.py
"""tools/node: its own tests, with this Python as torchbolt's, and the command line."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import torchbolt
from torchbolt.cli import main

FOLDER = pathlib.Path(__file__).parents[2] / "tools" / "node"
NODE = shutil.which("node")
ENVIRONMENT = os.environ | {"TORCHBOLT_PYTHON": sys.executable}
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node here")


def node(*arguments):
    return subprocess.run([NODE, *arguments], cwd=FOLDER, env=ENVIRONMENT, capture_output=True, text=True)


@needs_node
def test_its_own_tests():
    done = node("--test")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^# fail 0$", done.stdout, re.M) and re.search(r"^# skipped 0$", done.stdout, re.M)


@needs_node
def test_its_command_line():
    done = node("cli.js", "cache")
    assert done.returncode == 0 and "folder" in json.loads(done.stdout), done.stderr
    assert node("cli.js", "cache", "export").returncode == 2
    assert node("cli.js", "probe", "--help").stdout.startswith("usage: torchbolt probe")


@needs_node
def test_the_program_of_its_readme(tmp_path):
    """A package finds itself by its name, and --eval lies in the folder that node is started in."""
    (tmp_path / "net.py").write_text("import torch\ndef model():\n    return torch.nn.Linear(64, 64).eval()\n")
    (program,) = re.findall(r"^```js\n(.*?)^```", (FOLDER / "README.md").read_text(), re.M | re.S)
    done = node("--input-type=module", "--eval", program.replace('"net.py"', json.dumps(str(tmp_path / "net.py"))))
    assert done.returncode == 0 and re.match(r"[\d.]+ \{", done.stdout), done.stderr


def test_it_has_the_same_verbs_and_version():
    text = (FOLDER / "index.js").read_text()
    assert json.loads(re.search(r"VERBS = (\[.*?\]);", text)[1]) == list(main.VERBS)
    facts = json.loads((FOLDER / "package.json").read_text())
    assert facts["version"] == torchbolt.__version__ and "dependencies" not in facts
