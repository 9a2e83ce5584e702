# tests/cli/test_documents.py
"""Every command and every program of README.md and of docs/ runs, and ends as it says there."""

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

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "guide").glob("*.md"))]
# What a reader has already where a page does not say it.
GIVEN = {
    "README.md": """
import torch
import torchbolt

class Net(torch.nn.Sequential):
    pass

def my_backend(gm, inputs):
    return gm.forward

def fn(x):
    return x.sin() * 2

torch.manual_seed(0)
model, x = Net(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).eval(), torch.ones(8, 64)
inputs = (x,)
"""
}
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
    said, _, remark = command.partition(" # ")
    wanted = int(remark.removeprefix("exit code ")) if remark.startswith("exit code ") else 0
    with monkeypatch.context() as patch:
        while (assignment := re.match(r"([A-Z_]+)=(\S+) ", said)) is not None:
            patch.setenv(*assignment.groups())
            said = said[assignment.end() :]
        arguments = shlex.split(said)
        apart = arguments[0] != "torchbolt" or arguments[1] == "run"
        patch.setattr(benchmark, "_SPREAD", float("inf"))  # a loaded machine's times are not steady
        code = in_another(arguments) if apart else in_this_process(arguments[1:])
    assert code == wanted, command


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of the page's own, and no files of other pages among the imported ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TORCHBOLT_CACHE_DIR", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    torchbolt.reset()
    yield tmp_path
    torchbolt.uninstall()
    torchbolt.config.reset()
    torch.set_num_threads(threads)
    for name in ("net", "model"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", [page for page in PAGES if list(parts(page))], ids=lambda page: page.stem)
def test_a_page(page, place, monkeypatch):
    names = {"__name__": "__main__"}
    if page.name in GIVEN:
        (place / "model.py").write_text(GIVEN[page.name])
        exec(GIVEN[page.name], names)
    for kind, what, text in parts(page):
        if kind == "file":
            (place / what).write_text(text)
        elif kind == "program":
            exec(compile(text, str(page), "exec"), names)
        else:
            run(what, monkeypatch)


def test_no_block_is_passed_over():
    """What is neither a program nor a command says so: sh builds and installs, js runs in test_node.py."""
    others = {"README.md": {"sh"}, "CONTRIBUTING.md": {"sh"}}
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/stages/*.md"), *ROOT.glob("examples/*.md")]:
        opened = re.findall(r"^ *```(.*)$", page.read_text(), re.M)[::2]
        assert set(opened) <= {"python", "console"} | others.get(page.name, set()), page


def test_every_verb_is_shown():
    shown = {re.search(r"torchbolt (\w+)", command)[1] for command in COMMANDS if "torchbolt --" not in command
             and command.startswith(("torchbolt", "TORCHBOLT"))}  # fmt: skip
    assert {"run", *main.VERBS} <= shown
    titles = set(re.findall(r"^## (\w+)$", (DOCS / "tools.md").read_text(), re.M))
    assert {"run", *main.VERBS} <= titles
