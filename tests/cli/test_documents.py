# tests/cli/test_documents.py
"""Every command and every program of README.md and of docs/ runs, and ends as it says there.

What stands within a sentence is looked up instead: the verb and its flags, the target of make, the name of the
module. What builds and installs is run by .ci/run and scripts/nightly.sh; here it is looked up as well.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import torch

import torchbolt
from torchbolt import _C, torch_names
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


EVERYWHERE = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    ROOT / "examples" / "README.md",
]
BINARIES = pathlib.Path(_C.__file__).parent / "bin"
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


def in_sentences(begin):
    """What stands between single backticks and begins so, each once, with the first page that says it."""
    found = {}
    for page in EVERYWHERE:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        for said in re.findall(rf"`((?:{begin})[^`\n]*)`", text):
            found.setdefault(said, page.name)
    return [pytest.param(said, id=f"{page}: {said}") for said, page in found.items()]


def flags_of(said):
    return {word.partition("=")[0] for word in said.split() if word.startswith("--")}


@pytest.mark.parametrize("said", in_sentences("torchbolt "))
def test_a_verb_within_a_sentence(said, capsys):
    words = said.split()
    if words[1] not in ("run", "--version"):
        with pytest.raises(SystemExit):
            main.main([words[1], "--help"])
        assert flags_of(said) <= set(re.findall(r"--[\w-]+", capsys.readouterr().out))


@pytest.mark.parametrize("said", in_sentences(r"python -m bench\.|python tests/"))
def test_a_benchmark_within_a_sentence(said):
    words = said.split()
    how = words[1:3] if words[1] == "-m" else words[1:2]
    done = subprocess.run([sys.executable, *how, "--help"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert flags_of(said) <= set(re.findall(r"--[\w-]+", done.stdout))


@pytest.mark.parametrize("said", in_sentences("bolt-opt --"))
def test_a_flag_of_bolt_opt_within_a_sentence(said):
    done = subprocess.run([BINARIES / "bolt-opt", "--help"], capture_output=True, text=True)
    assert flags_of(said) <= set(re.findall(r"--[\w-]+", done.stdout + done.stderr))


@pytest.mark.parametrize("said", in_sentences(r"make [\w-]+|scripts/|torchbolt/\w+|tests/\w+/|src/\w+|examples/\w+"))
def test_a_target_or_a_file_within_a_sentence(said):
    word = said.split()[1] if said.startswith("make ") else said.split()[0]
    path = re.sub(r":\d+$", "", word)
    assert word in TARGETS or list(ROOT.glob(path)) or list(ROOT.glob(path + ".*")), said


@pytest.mark.parametrize("said", in_sentences(r"torchbolt\.\w"))
def test_a_name_within_a_sentence(said):
    """It is there, or asking for it says in one sentence what is there instead."""
    if re.fullmatch(r"torchbolt\.\w+\.(cpp|h|py|ir)", said):
        return
    at = torchbolt
    for name in re.match(r"torchbolt((?:\.\w+)+)", said)[1].split(".")[1:]:
        if at is torchbolt and name in torch_names.FUNCTIONS:
            return
        at = importlib.import_module("torchbolt.opt") if name == "opt" else getattr(at, name)


def test_variables_are_ours():
    """Those named in the documents are read: in C++ by its table, in Python by their name."""
    sources = [*(ROOT / "torchbolt").rglob("*.py"), *(ROOT / "src").rglob("knobs.cpp"), *(ROOT / "bench").rglob("*.py")]
    known = set(re.findall(r"\bTORCHBOLT_[A-Z_]+\b", "".join(file.read_text() for file in sources)))
    said = {name for page in EVERYWHERE for name in re.findall(r"\bTORCHBOLT_[A-Z_]+\b", page.read_text())}
    assert said - known == set()


def commands_that_build():
    """Lines of blocks of sh, without remarks."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.M | re.S):
            yield from (line.partition(" #")[0].strip() for line in block.splitlines() if line.strip())


def test_commands_that_build_name_what_is_there():
    options = set(re.findall(r"\b(BOLT_\w+)", "".join(file.read_text() for file in ROOT.glob("cmake/*.cmake"))))
    for line in commands_that_build():
        words = line.split()
        if words[0] == "make":
            assert set(words[1:]) <= TARGETS, line
        assert set(re.findall(r"-D(BOLT_\w+)", line)) <= options, line
        for path in re.findall(r"\b(?:tests|scripts|bench)/[\w/.]+", line):
            assert (ROOT / path).exists(), line


def test_a_stage_by_hand(tmp_path):
    """CONTRIBUTING's way from a tape to machine code, with the tape of a small program."""
    by_hand = [line for line in commands_that_build() if re.match(r"(python -m torchbolt\.opt|bolt-opt) ", line)]
    assert len(by_hand) >= 4
    torchbolt.reset()
    options = {"trace.enabled": True, "trace.debug_dir": str(tmp_path)}
    torchbolt.compile(lambda x: torch.softmax(x * 2, -1).sum(0), options=options)(torch.ones(4, 8))
    (tape,) = tmp_path.glob("torchbolt_debug/run_*/*/1_recorded.txt")
    (tmp_path / "tape.ir").write_text(tape.read_text())
    path = os.pathsep.join([str(BINARIES), os.path.dirname(sys.executable), os.environ["PATH"]])
    for line in by_hand:
        done = subprocess.run(
            ["bash", "-ec", line], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, (line, done.stderr)


def test_every_verb_is_shown():
    shown = {re.search(r"torchbolt (\w+)", command)[1] for command in COMMANDS if "torchbolt --" not in command
             and command.startswith(("torchbolt", "TORCHBOLT"))}  # fmt: skip
    assert {"run", *main.VERBS} <= shown
    titles = set(re.findall(r"^## (\w+)$", (DOCS / "tools.md").read_text(), re.M))
    assert {"run", *main.VERBS} <= titles
