# scripts/check_test_names.py
"""Checks that no two Python files of tests/ have one name.

The folders of tests are no packages, so each file is a module by its own name alone: pytest refuses the second test
file of a name, and of two helpers whichever folder was seen first is imported for both. A conftest.py is found by its
folder.
"""

import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent


def complaints(files: list[str]) -> list[str]:
    of_name: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        of_name[PurePosixPath(file).name].append(file)
    return [
        f"{other}: its name is that of {first}"
        for name, (first, *others) in of_name.items()
        for other in others
        if name != "conftest.py"
    ]


def main() -> int:
    found = complaints([file.relative_to(ROOT).as_posix() for file in ROOT.glob("tests/**/*.py")])
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
