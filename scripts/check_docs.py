# scripts/check_docs.py
"""Checks that what the documents point at is there: files in `backticks`, and links with their headings.

A name such as `loops/plan.h` means any file of the repository whose path ends so. Headers of torch are not ours.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TREES = ("src", "torchbolt", "bench", "scripts", "tests", "tools", "docs", "cmake")

NAME = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:cpp|h|def|py|md|sh))`")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(document: Path) -> set[str]:
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def complaints(document: Path, files: list[str]):
    text = document.read_text()
    for name in NAME.findall(text):
        ours = not name.startswith(("ATen/", "torch/"))
        if ours and not any(("/" + file).endswith("/" + name) for file in files):
            yield f"there is no file {name}"
    for target, anchor in LINK.findall(text):
        aim = (document.parent / target).resolve() if target else document
        if not aim.exists():
            yield f"there is nothing at {target}"
        elif anchor and anchor not in anchors(aim):
            yield f"{target or 'it'} has no heading #{anchor}"


def main() -> int:
    files = [file.relative_to(ROOT).as_posix() for tree in TREES for file in (ROOT / tree).rglob("*.*")]
    found = [f"{d.relative_to(ROOT)}: {c}" for d in DOCUMENTS for c in complaints(d, files)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
