# scripts/check_limits.py
"""Checks that nothing grows too large: the map by its lines, classes by their methods.

A class that comes to its limit holds more than one thing: a part with its state becomes a class, and what uses only
what everybody may is a function.
"""

import sys
from pathlib import Path

from check_definitions import Reader, Token, closing, preprocessed

SRC = Path(__file__).resolve().parent.parent / "src"
LINES = {"compile.cpp": 150}
MOST_METHODS = 60
# More for those that a whole stage or an interface goes through, fewer for what holds the state of a call.
RUNNABLES = {"Runnable", "Compiled", "Trained", "Chain", "WholeStep", "Replayed", "Foreign", "EagerTrial"}
METHODS = {
    "observe/recording.h": {"Recording": 150},
    "observe/world.h": {"World": 150},
    "codegen/cpu/emitter.h": {"Emitter": 100},
    "interp/semantics.h": {"Semantics": 90},
    "record/recorder.h": {"Recorder": 80},
    "run/": dict.fromkeys(RUNNABLES | {"Execution", "CallMemory", "TrainedCall"}, 25),
}
ACCESS = {"public", "private", "protected"}


def is_method(head: list[Token]) -> bool:
    """Of a member's tokens up to `;` or its body: are there parameters, outside of templates and values?"""
    plain = [token.text for token in head]
    at = 0
    while at < len(plain) and plain[at] not in ("(", "="):
        if plain[at] == "operator":
            return True
        at = closing(head, at) + 1 if plain[at] in ("<", "[") else at + 1
    return at < len(plain) and plain[at] == "(" and plain[0] not in ("using", "friend", "typedef", "static_assert")


def methods_in(body: list[Token]) -> int:
    """Of a class, in its braces; those of classes within it do not count."""
    reader = Reader("", body[-2:0:-1], {})
    count = 0
    while reader.rest:
        if reader.rest[-1].text in ACCESS:
            del reader.rest[-2:]
            continue
        head = reader.head()
        is_inside = head and head[0].text in ("class", "struct", "enum", "union")
        if reader.rest and reader.rest[-1].text == "{":
            reader.balanced()
        if reader.rest and reader.rest[-1].text == ";":
            reader.rest.pop()
        count += bool(head) and not is_inside and is_method(head)
    return count


def classes_in(text: str) -> dict[str, int]:
    """Those at the scope of a namespace, with their methods."""
    tokens, _ = preprocessed(text, 0)
    found = {}
    for i, token in enumerate(tokens):
        if token.text not in ("class", "struct") or not tokens[i + 1].is_word:
            continue
        end = i + 2
        while end < len(tokens) and tokens[end].text not in ("{", ";", "(", ")", ">", "="):
            end = closing(tokens, end) + 1 if tokens[end].text == "<" else end + 1
        if end < len(tokens) and tokens[end].text == "{":
            found[tokens[i + 1].text] = methods_in(tokens[end : closing(tokens, end) + 1])
    return found


def too_many(path: str, name: str, count: int, most: int) -> str:
    return f"src/{path}: {name} has {count} methods; the limit is {most}"


def complaints(files: dict[str, str]) -> list[str]:
    """Of texts by path below src/."""
    lines = []
    for path, most in LINES.items():
        if (n := files[path].count("\n")) >= most:
            lines.append(f"src/{path}: {n} lines; the map has fewer than {most}")
    classes = {path: classes_in(text) for path, text in files.items() if path.endswith((".h", ".cpp"))}
    limited = set()
    for place, limits in METHODS.items():
        for name, most in limits.items():
            found = [path for path in classes if path.startswith(place) and name in classes[path]]
            if not found:
                lines.append(f"scripts/check_limits.py: there is no class {name} in src/{place}")
            lines += [too_many(path, name, classes[path][name], most) for path in found if classes[path][name] > most]
            limited |= {(path, name) for path in found}
    for path, methods in classes.items():
        for name, count in methods.items():
            if (path, name) not in limited and count > MOST_METHODS:
                lines.append(too_many(path, name, count, MOST_METHODS))
    return lines


def main() -> int:
    files = {file.relative_to(SRC).as_posix(): file.read_text() for file in SRC.rglob("*") if file.is_file()}
    found = complaints(files)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
