# scripts/check_openings.py
"""Checks that every file opens with its path, in a comment: `// run/views.h` below src/, `# bench/cpu.py` elsewhere.

What comes in, what goes out and why stands behind it, which no program can check: in C++ on the lines behind it, of a
script or module also on the same line (how it is called). --fix writes the missing lines.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMENTS = {
    **dict.fromkeys((".cpp", ".h", ".def", ".js", ".ts"), "//"),
    **dict.fromkeys((".py", ".sh", ".cmake"), "#"),
}


def files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if Path(name).suffix in COMMENTS and (ROOT / name).exists()]


def opening(name: str) -> str:
    return f"{COMMENTS[Path(name).suffix]} {name.removeprefix('src/')}"


def place(lines: list[str]) -> int:
    """The line that it belongs in: the first, or the one behind `#!`."""
    return 1 if lines and lines[0].startswith("#!") else 0


def opens(name: str, lines: list[str]) -> bool:
    first = lines[place(lines)] if len(lines) > place(lines) else ""
    rest = first.removeprefix(opening(name))
    return not lines or (rest != first and (not rest or (is_script(name) and rest[0] in " :")))


def is_script(name: str) -> bool:
    return COMMENTS[Path(name).suffix] == "#"


def mend(name: str, lines: list[str]) -> None:
    """Writes the line; what stood behind the path goes to a line of its own, unless it only names the file's header."""
    at = place(lines)
    said = lines[at].removeprefix(opening(name) + ": ") if len(lines) > at else ""
    lines.insert(at, opening(name))
    if len(lines) == at + 1 or said == lines[at + 1]:
        return
    said = said.removeprefix(f"see {Path(name).stem}.h.").strip()
    lines[at + 1 : at + 2] = [f"// {said[0].upper()}{said[1:]}"] if said else []


def main() -> int:
    wrong = 0
    for name in files():
        text = (ROOT / name).read_text()
        lines = text.splitlines()
        if opens(name, lines):
            continue
        if "--fix" in sys.argv:
            mend(name, lines)
            (ROOT / name).write_text("\n".join(lines) + "\n")
        else:
            print(f"{name}: its first line is to be `{opening(name)}`")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
