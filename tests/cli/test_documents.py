# tests/cli/test_documents.py
"""Every command and every program of docs/tools.md and docs/guide runs, and ends as it says there."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import torch

import torchbolt
from torchbolt.cli import benchmark, main

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "tools.md", *sorted((DOCS / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.M | re.S)


def parts(page):
    """What a page shows, in order: ("file", name, text), ("program", "", text), ("command", line, "")."""
    for kind, text in BLOCK.findall(page.read_text()):
        name = re.match(r"# (\S+\.py)\n", text)
        if kind == "console":
            yield from (("command", line, "") for line in re.findall(r"^\$ (.+)$", text, re.M))
        else:
            yield ("file", name[1], text) if name else ("program", "", text)


COMMANDS = [command for page in PAGES for kind, command, _ in parts(page) if kind == "command"]


def in_this_process(arguments):
    try:
        return main.main(arguments)
    except SystemExit as end:  # --version
        return end.code


def in_another(arguments):
    how = ["-m", "torchbolt", *arguments[1:]] if arguments[0] == "torchbolt" else arguments[1:]
    return subprocess.run([sys.executable, *how], capture_output=True).returncode


def run(command, monkeypatch) -> None:
    said, _, remark = command.partition(" # exit code ")
    with monkeypatch.context() as patch:
        while (assignment := re.match(r"([A-Z_]+)=(\S+) ", said)) is not None:
            patch.setenv(*assignment.groups())
            said = said[assignment.end() :]
        arguments = shlex.split(said)
        apart = arguments[0] != "torchbolt" or arguments[1] == "run"
        patch.setattr(benchmark, "_SPREAD", float("inf"))  # a loaded machine's times are not steady
        code = in_another(arguments) if apart else in_this_process(arguments[1:])
    assert code == int(remark or 0), command


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of the page's own, and no files of other pages among the imported ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TORCHBOLT_CACHE_DIR", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    torchbolt.reset()
    yield tmp_path
    torch.set_num_threads(threads)
    sys.modules.pop("net", None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page(page, place, monkeypatch):
    names = {"__name__": "__main__"}
    for kind, what, text in parts(page):
        if kind == "file":
            (place / what).write_text(text)
        elif kind == "program":
            exec(compile(text, str(page), "exec"), names)
        else:
            run(what, monkeypatch)


def test_every_verb_is_shown():
    shown = {re.search(r"torchbolt (\w+)", command)[1] for command in COMMANDS if "torchbolt --" not in command
             and command.startswith(("torchbolt", "TORCHBOLT"))}  # fmt: skip
    assert {"run", *main.VERBS} <= shown
    titles = set(re.findall(r"^## (\w+)$", (DOCS / "tools.md").read_text(), re.M))
    assert {"run", *main.VERBS} <= titles
