# tests/support/test_layers.py
"""scripts/check_layers.py: a made-up source tree -> what it says of each include."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_layers.py"


@pytest.fixture
def complaints(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("check_layers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SRC", tmp_path / "src")

    def check(path, include):
        file = tmp_path / "src" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'#include "{include}"\n')
        return list(module.complaints(file))

    return check


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("guard/leaf.h", "python/py_ref.h"),
        ("observe/world.h", "guard/leaf.h"),
        ("observe/recording.h", "interp/semantics.h"),
        ("interp/frame.h", "python/compat.h"),
        ("module.cpp", "session/api.h"),
    ],
)
def test_a_folder_may_include_those_below(complaints, path, include):
    assert complaints(path, include) == []


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("guard/leaf.cpp", "interp/frame.h"),  # strangers, whichever stands above
        ("interp/frame.cpp", "guard/leaf.h"),
        ("guard/leaf.cpp", "observe/rebuild/recipe.h"),
        ("python/compat.h", "interp/frame.h"),
        ("graph/ir.h", "python/py_ref.h"),
        ("graph/ir.h", "Python.h"),  # the core knows no Python
        ("elsewhere/new.cpp", "guard/leaf.h"),  # stands nowhere on the ladder
    ],
)
def test_others_are_complained_about(complaints, path, include):
    assert len(complaints(path, include)) == 1
