# tests/api/test_imports.py
"""torchbolt's Python files import only what lies below them, and do so at their top."""

import ast
import pathlib
from graphlib import CycleError, TopologicalSorter

import pytest

from torchbolt import api

ROOT = pathlib.Path(api.__file__).resolve().parent
NATIVE = {"torchbolt._C", "torchbolt._build"}  # C++, and a file that the build writes

# Each imports none of those behind it.
STOREYS = [f"torchbolt.{name}" for name in ("exc", "options", "controls", "backends", "stance", "arguments", "api")]


def modules(root):
    """The package's files by the name that they are imported under."""
    files = {}
    for file in root.rglob("*.py"):
        parts = [root.name, *file.relative_to(root).with_suffix("").parts]
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


def imports(tree):
    return [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]


def imported(node, known):
    """The modules among `known` that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, f"line {node.lineno}: imports of this package name the whole path"
        whole = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in known else node.module for name in whole if name not in NATIVE]
    return known & set(names)


def import_graph(root):
    files = modules(root)
    known = set(files)
    parsed = {name: ast.parse(file.read_text()) for name, file in files.items()}
    return {name: set().union(*(imported(node, known) for node in imports(tree))) for name, tree in parsed.items()}


def in_order(graph):
    """The modules, each behind what it imports; CycleError names a circle."""
    return list(TopologicalSorter(graph).static_order())


def test_no_files_import_each_other():
    graph = import_graph(ROOT)
    assert len(in_order(graph)) == len(modules(ROOT)) > 20
    for i, name in enumerate(STOREYS):
        assert not graph[name] & set(STOREYS[i:]), name


def test_a_circle_is_found_also_where_an_import_stands_in_a_function(tmp_path):
    root = tmp_path / "torchbolt"
    root.mkdir()
    (root / "__init__.py").write_text("from torchbolt import above, below\n")
    (root / "above.py").write_text("from torchbolt.below import helper\n")
    (root / "below.py").write_text("def helper():\n    from torchbolt import above\n\n    return above\n")
    with pytest.raises(CycleError) as circle:
        in_order(import_graph(root))
    assert {"torchbolt.above", "torchbolt.below"} == set(circle.value.args[1])


def test_imports_stand_at_the_top():
    for name, file in modules(ROOT).items():
        functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
        assert [f"{name}:{node.lineno}" for function in functions for node in imports(function)] == []
