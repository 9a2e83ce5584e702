"""Every command of docs/tools.md runs, and ends as it says there."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import torch

from torchbolt.cli import main

TEXT = (pathlib.Path(__file__).parents[2] / "docs" / "tools.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", TEXT, re.M | re.S))
COMMANDS = re.findall(r"^\$ (.+)$", TEXT, re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("documents")
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


def in_this_process(arguments, capsys):
    code = main.main(arguments)
    return code, capsys.readouterr().err


def in_another(arguments):
    how = ["-m", "torchbolt", *arguments[1:]] if arguments[0] == "torchbolt" else arguments[1:]
    done = subprocess.run([sys.executable, *how], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(command, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TORCHBOLT_CACHE_DIR", str(folder / "cache"))
    said, _, remark = command.partition(" # exit code ")
    while (assignment := re.match(r"([A-Z_]+)=(\S+) ", said)) is not None:
        monkeypatch.setenv(*assignment.groups())
        said = said[assignment.end() :]
    arguments = shlex.split(said)
    threads = torch.get_num_threads()
    if arguments[0] == "torchbolt" and arguments[1] != "run":
        code, err = in_this_process(arguments[1:], capsys)
    else:
        code, err = in_another(arguments)
    torch.set_num_threads(threads)
    assert code == int(remark or 0), err


def test_every_verb_is_documented():
    shown = {shlex.split(command.split("=", 1)[-1].split(" ", 1)[-1] if "=" in command.split()[0] else command)[1]
             for command in COMMANDS}  # fmt: skip
    assert {"run", *main.VERBS} <= set(re.findall(r"^## (\w+)$", TEXT, re.M)) & (shown | {"cache"})
    assert len(FILES) == 1 and os.sep not in next(iter(FILES))
