# scripts/check_docs.py
"""Checks that what the documents point at is there: files and names of the code in `backticks`, links, headings.

A name such as `loops/plan.h` means any file of the repository whose path ends so. Headers of torch are not ours. A
name of the code is looked for as a word of the sources, and only in the pages about them: guides tell of users' code.
Comments of the sources name files, too.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TREES = ("src", "torchbolt", "bench", "scripts", "tests", "tools", "docs", "cmake")

CODE = {".cpp", ".h", ".def", ".py", ".cu", ".sh", ".cmake", ".txt"}
# Their backticks hold names of the code, but for the page that lists operators of ATen's.
ABOUT_CODE = [ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", *sorted((ROOT / "docs/stages").glob("*.md"))]
LISTS_OPERATORS = "lower.md"

NAME = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:cpp|h|def|py|md|sh))`")
IDENTIFIER = re.compile(r"`((?:\w+::)*(?:\w*[a-z]\w*_\w+|[A-Z]\w*[a-z][A-Z]\w*|\w+::\w+))(?:\(\))?`")
IN_COMMENT = re.compile(r"(?<![\w./*<])((?:\w+/)*\w+\.(?:cpp|h|def))\b(?!\[)")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(document: Path) -> set[str]:
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def missing(names: list[str], files: list[str]) -> list[str]:
    """Of names of files, those that are ours and are not there."""
    ours = {name for name in names if not name.startswith(("ATen/", "torch/"))}
    return sorted(name for name in ours if not any(("/" + file).endswith("/" + name) for file in files))


def unknown(text: str, words: set[str]) -> list[str]:
    """Of the names of the code in a document, those with a part that stands nowhere."""
    return [name for name in IDENTIFIER.findall(text) if not set(name.split("::")) <= words]


def comments(text: str) -> str:
    return "\n".join(line.partition("//")[2] for line in text.split("\n"))


def complaints(document: Path, files: list[str], words: set[str]):
    text = document.read_text()
    yield from (f"there is no file {name}" for name in missing(NAME.findall(text), files))
    if document in ABOUT_CODE and document.name != LISTS_OPERATORS:
        yield from (f"there is no {name} in the code" for name in unknown(text, words))
    for target, anchor in LINK.findall(text):
        aim = (document.parent / target).resolve() if target else document
        if not aim.exists():
            yield f"there is nothing at {target}"
        elif anchor and anchor not in anchors(aim):
            yield f"{target or 'it'} has no heading #{anchor}"


def main() -> int:
    paths = [file for tree in TREES for file in (ROOT / tree).rglob("*.*")]
    files = [file.relative_to(ROOT).as_posix() for file in paths]
    code = {file: file.read_text() for file in paths if file.suffix in CODE}
    words = {word for text in code.values() for word in re.findall(r"\w+", text)}
    found = [f"{d.relative_to(ROOT)}: {c}" for d in DOCUMENTS for c in complaints(d, files, words)]
    for file, text in code.items():
        if file.is_relative_to(ROOT / "src"):
            gone = missing(IN_COMMENT.findall(comments(text)), files)
            found += [f"{file.relative_to(ROOT)}: there is no file {name}" for name in gone]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
