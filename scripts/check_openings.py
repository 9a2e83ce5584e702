# scripts/check_openings.py
"""Checks that every file opens with its path, in a comment: `// run/views.h` below src/, `# bench/cpu.py` elsewhere.

What comes in, what goes out and why stands behind it, which no program can check. --fix writes the missing lines.
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
    return not lines or (rest != first and (not rest or rest[0] in " :"))


def main() -> int:
    wrong = 0
    for name in files():
        text = (ROOT / name).read_text()
        lines = text.splitlines()
        if opens(name, lines):
            continue
        if "--fix" in sys.argv:
            lines.insert(place(lines), opening(name))
            (ROOT / name).write_text("\n".join(lines) + "\n")
        else:
            print(f"{name}: its first line is to be `{opening(name)}`")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
