# scripts/check_definitions.py
"""Checks that a name means one thing, by reading the text of src/ and of the C++ tests: definitions at namespace scope,
also those that a macro of ours or of googletest's makes. Declarations do not count, and of #if and #else both sides are
read.

One definition: no two files define a type, alias, concept, function or inline variable in one namespace. Two classes
of one name, each in its own file, compile and link; the linker then keeps one of the two constructors, destructors or
inline functions for both, and memory is laid out by one and read by the other. No compiler says so ("no diagnostic
required"). Functions are told apart by their parameters' types. The same text twice is no error of the language, but of
taste, and counts, too.

One class: no class of one namespace of src/ has the name of a class of another, so that who searches for it finds one.
What stands in an unnamed namespace or in a class is found where it is used; such names may be common ones (Parser,
Row), but not that of a class which other files see.

One room: no two .cpp files of a folder of src/, and no two tests, give one name to something of their own, nor one that
another file of the namespace exports; nor do two files bring in one name from different namespaces; nor is a function
of one file's own called as one of an enclosing namespace that another file calls, and hides it. cmake/Unity.cmake may
put both files into one unit: that is an error there, or the wrong one is called.
"""

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# opcodes_311.def, only_312.h: what is only in the build for that Python.
OF_ONE_PYTHON = re.compile(r"_(3\d\d)\.\w+$")

ROOT = Path(__file__).resolve().parent.parent
READ = ("src/**/*.h", "src/**/*.cpp", "tests/**/*.h", "tests/**/*_test.cpp")
TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\\\n)
    |(?P<directive>^[ \t]*\#(?:\\\n|//[^\n]*|/\*.*?\*/|[^\n\\]|\\)*)
    |(?P<raw>\w*R"(?P<fence>[^(\s]*)\(.*?\)(?P=fence)")
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    |(?P<mark>::|->|\#\#|.)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
TYPES = {"class", "struct", "union", "enum"}
# What a file has to itself, as a part of a name.
UNNAMED = "(unnamed)::"
# Never in one unit with others (cmake/Unity.cmake).
ALONE = {"src/interp/code.cpp", "src/interp/loop_plain.cpp", "src/interp/loop_observed.cpp"}
PAIRS = {"(": ")", "[": "]", "{": "}"}
# What of googletest makes definitions; they clash where a suite has one test twice.
GOOGLETEST = "".join(f"#define {name}(a, b) class a##_##b##_Test\n" for name in ("TEST", "TEST_F", "TEST_P"))
# Words that are a type by themselves, so that what follows them is a name and they are none.
BUILTIN = {"void", "bool", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "auto"}
WITH_BRACKETS = {"__attribute__", "alignas", "decltype", "explicit"}
QUALIFIERS = {"const", "volatile", "struct", "class", "typename", "enum"}


class Token(NamedTuple):
    text: str
    line: int
    is_word: bool = False


class Macro(NamedTuple):
    parameters: list[str] | None
    body: list[Token]


class Definition(NamedTuple):
    kind: str
    scope: str  # its namespaces: "bolt::run::", "bolt::run::(unnamed)::"
    name: str
    told_apart_by: str  # a function's parameters
    text: str
    file: str
    line: int

    def is_own(self) -> bool:
        return UNNAMED in self.scope

    def namespace(self) -> str:
        return self.scope.replace(UNNAMED, "")

    def place(self) -> str:
        return f"{self.file}:{self.line}"


def tokens_of(text: str, line: int = 1):
    """Words and marks with their lines; a directive is one token."""
    for match in TOKEN.finditer(text):
        if match.lastgroup != "space":
            yield Token(match[0].strip() if match["directive"] else match[0], line, bool(match["word"]))
        line += match[0].count("\n")


def macro_of(directive: str, line: int) -> tuple[str, Macro] | None:
    match = re.match(r"#\s*define\s+(\w+)(\(([^)]*)\))?(.*)", directive.replace("\\\n", " "), re.DOTALL)
    if not match:
        return None
    parameters = [p.strip() for p in match[3].split(",")] if match[2] else None
    body = [Token(t.text, line, t.is_word) for t in tokens_of(" " + match[4])]
    return match[1], Macro(parameters, body)


def preprocessed(text: str, side: int) -> tuple[list[Token], dict[str, Macro]]:
    """What is compiled if of every #if with an #else the first (0) or the last (-1) side is; and the macros."""
    kept, macros = [], {}
    open_ifs: list[list[list[Token]]] = []  # of each #if around here: the tokens of its sides
    for token in tokens_of(text):
        out = open_ifs[-1][-1] if open_ifs else kept
        if not token.text.startswith("#") or token.text == "##":
            out.append(token)
            continue
        directive = token.text[1:].lstrip()
        if directive.startswith("if"):
            open_ifs.append([[]])
        elif directive.startswith(("elif", "else")) and open_ifs:
            open_ifs[-1].append([])
        elif directive.startswith("endif") and open_ifs:
            sides = open_ifs.pop()
            (open_ifs[-1][-1] if open_ifs else kept).extend(sides[side])
        elif found := macro_of(token.text, token.line):
            macros.setdefault(*found)
    return kept, macros


def split_at_commas(tokens: list[Token]) -> list[list[Token]]:
    parts, depth = [[]], 0
    for token in tokens:
        depth += (token.text in "([{<") - (token.text in ")]}>")
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def expanded(macro: Macro, arguments: list[list[Token]], line: int) -> list[Token]:
    names = macro.parameters or []
    given = dict(zip(names, arguments, strict=False))
    if names[-1:] == ["..."]:
        rest = arguments[len(names) - 1 :]
        given["__VA_ARGS__"] = [t for i, part in enumerate(rest) for t in ([Token(",", line)] if i else []) + part]
    out: list[Token] = []
    glue = False
    for token in macro.body:
        if token.text == "##":
            glue = True
            continue
        for piece in given.get(token.text, [token]):
            if glue and out:
                out[-1] = Token(out[-1].text + piece.text, line, True)
            else:
                out.append(Token(piece.text, line, piece.is_word))
            glue = False
    return out


def words(tokens: list[Token]) -> str:
    return " ".join(t.text for t in tokens)


def type_of(parameter: list[Token]) -> str:
    """A parameter without its name and its default."""
    out: list[Token] = []
    depth = 0
    for token in parameter:
        depth += (token.text in "([{<") - (token.text in ")]}>")
        if token.text == "=" and depth == 0:
            break
        out.append(token)
    if len(out) > 1 and out[-1].is_word and out[-1].text not in BUILTIN | QUALIFIERS and out[-2].text != "::":
        before = [t for t in out[:-1] if t.text not in QUALIFIERS]
        out = out[:-1] if before else out
    return words(out)


@dataclass
class Reader:
    """Goes through a file's namespaces and collects what they define."""

    file: str
    rest: list[Token]  # the next one last
    macros: dict[str, Macro]
    found: list[Definition] = field(default_factory=list)

    def balanced(self) -> list[Token]:
        """The bracket that comes next, with all that is in it."""
        out = [self.rest.pop()]
        closing = [PAIRS[out[0].text]]
        while closing and self.rest:
            out.append(token := self.rest.pop())
            if token.text in PAIRS:
                closing.append(PAIRS[token.text])
            elif token.text == closing[-1]:
                closing.pop()
        return out

    def angles(self) -> list[Token]:
        out, depth = [], 0
        while self.rest:
            if self.rest[-1].text in PAIRS:
                out += self.balanced()
                continue
            out.append(token := self.rest.pop())
            depth += (token.text == "<") - (token.text == ">")
            if depth == 0:
                break
        return out

    def scope(self, inside: str) -> None:
        """To the end of a namespace, or of the file."""
        while self.rest:
            token = self.rest[-1]
            if token.text == "}":
                self.rest.pop()
                return
            if token.text == "namespace" or (token.text == "inline" and self.rest[-2].text == "namespace"):
                self.namespace(inside)
            elif token.text == "extern" and self.rest[-2].text.startswith('"') and self.rest[-3].text == "{":
                del self.rest[-3:]
                self.scope(inside)
            elif not self.macro():
                self.declaration(inside)

    def namespace(self, inside: str) -> None:
        names = []
        while self.rest and (token := self.rest.pop()).text not in ("{", ";"):
            names.append(token)
        if token.text == "{":
            name = "".join(t.text for t in names if t.text not in ("namespace", "inline"))
            self.scope(inside + (f"{name}::" if name else UNNAMED))

    def macro(self) -> bool:
        """Puts a macro's text in the place of its use."""
        macro = self.macros.get(self.rest[-1].text)
        if not macro or (macro.parameters is not None and self.rest[-2].text != "("):
            return False
        line = self.rest.pop().line
        arguments = split_at_commas(self.balanced()[1:-1]) if macro.parameters is not None else []
        self.rest.extend(reversed(expanded(macro, arguments, line)))
        return True

    def head(self) -> list[Token]:
        """Up to what ends a declaration (`;`) or begins a body (`{`), which comes next."""
        out: list[Token] = []
        in_initialisers = False  # of a constructor, whose `name{...}` is no body
        while self.rest and self.rest[-1].text not in (";", "}"):
            text, before = self.rest[-1].text, out[-1] if out else Token("", 0)
            if text == "{" and not (in_initialisers and (before.is_word or before.text == ">")):
                break
            if text == "<" and (before.is_word and before.text != "operator"):
                out += self.angles()
            elif text in PAIRS:
                out += self.balanced()
            else:
                in_initialisers |= text == ":" and before.text == ")"
                out.append(self.rest.pop())
        return out

    def declaration(self, inside: str) -> None:
        head = self.head()
        body = self.balanced() if self.rest and self.rest[-1].text == "{" else []
        if self.rest and (self.rest[-1].text == ";" or not body):
            self.rest.pop()
        found = defined(head, body, UNNAMED in inside)
        if found:
            kind, name, told_apart_by, is_own = found
            text = words(head + body)
            scope = inside + (UNNAMED if is_own and UNNAMED not in inside else "")
            self.found.append(Definition(kind, scope, name, told_apart_by, text, self.file, head[0].line))


def without_template(head: list[Token]) -> tuple[list[Token], str]:
    """What follows `template <...> requires ...`, and what of that tells functions apart."""
    apart = ""
    while head and head[0].text == "template":
        depth, end = 0, len(head)
        for i, token in enumerate(head):
            depth += (token.text == "<") - (token.text == ">")
            if token.text == ">" and depth == 0:
                end = i + 1
                break
        apart += f"<{len(split_at_commas(head[2 : end - 1]))}>"
        head = head[end:]
    return head, apart


def defined(head: list[Token], body: list[Token], unnamed: bool) -> tuple[str, str, str, bool] | None:
    """Kind, name and parameters of what is defined here, and whether it is static; nothing if this only declares."""
    head, template = without_template(head)
    plain = [t.text for t in head]
    if not head or "friend" in plain[:2]:
        return None
    if plain[0] == "using":
        return ("alias", plain[1], "", False) if plain[2:3] == ["="] else None
    if plain[0] == "typedef":
        return "alias", plain[-1], "", False
    if plain[0] == "concept":
        return "concept", plain[1], "", False
    if plain[0] in TYPES and (body or "=" not in plain):
        found = type_name(head) if body else None
        return (*found, False) if found else None
    of_a_file = "static" in plain[:4]
    if body and "(" in plain and not is_initialised(plain):
        kind, name, told_apart_by = function_name(head, template)
        return kind, name, told_apart_by, of_a_file
    of_a_file |= ("constexpr" in plain[:2] or plain[0] == "const") and "inline" not in plain[:3]
    is_one = of_a_file or unnamed or "inline" in plain[:3]
    if not is_one or "extern" in plain or "operator" in plain or ("(" in plain and not is_initialised(plain)):
        return None
    name = variable_name(plain)
    return ("variable", name, "", of_a_file) if name.isidentifier() else None


def is_initialised(plain: list[str]) -> bool:
    """Is this a variable with its value, `int a = f(1)`, and no function?"""
    return "=" in plain and "operator" not in plain and ("(" not in plain or plain.index("=") < plain.index("("))


def type_name(head: list[Token]) -> tuple[str, str, str] | None:
    name: list[str] = []
    at = 1
    while at < len(head) and head[at].text != ":":
        text = head[at].text
        if text in ("(", "["):  # of an attribute, whose name is none of the type's
            at = closing(head, at)
            name = []
        elif text == "<":
            end = closing(head, at)
            name.append(words(head[at : end + 1]))
            at = end
        elif text == "::" or text not in {"final", "class", "struct"}:
            if name and name[-1] != "::" and text != "::":
                name = []  # that was BOLT_API
            name.append(text)
        at += 1
    return (head[0].text, "".join(name), "") if name else None


def closing(tokens: list[Token], at: int) -> int:
    pairs = PAIRS | {"<": ">"}
    opening, depth = tokens[at].text, 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text == opening) - (tokens[i].text == pairs[opening])
        if depth == 0:
            return i
    return len(tokens) - 1


def function_name(head: list[Token], template: str) -> tuple[str, str, str]:
    at = 0
    while at < len(head) and head[at].text != "(":
        text = head[at].text
        if text == "[" or (text == "<" and at and head[at - 1].text != "operator"):
            at = closing(head, at)
        elif text in WITH_BRACKETS and words(head[at + 1 : at + 2]) == "(":
            at = closing(head, at + 1)
        at += 1
    if words(head[at - 1 : at]) == "operator":  # operator()
        at += 2
    end = closing(head, at)
    parameters = ", ".join(type_of(p) for p in split_at_commas(head[at + 1 : end]))
    after = words(head[end + 1 :])
    requires = after if after.startswith("requires") else ""
    name = "".join(t.text for t in head[name_begin(head[:at]) : at])
    return "function", name, f"{template}({parameters}){requires}"


def name_begin(head: list[Token]) -> int:
    """Where the name begins that stands at the end: A<T>::f, A::~A, A::operator+=."""
    plain = [t.text for t in head]
    at = plain.index("operator") if "operator" in plain else len(head) - 1
    if at > 0 and plain[at - 1] == "~":
        at -= 1
    at = before_angles(plain, at)
    while at >= 2 and plain[at - 1] == "::":
        at = before_angles(plain, at - 2)
    return max(at, 0)


def before_angles(plain: list[str], at: int) -> int:
    depth = 0
    while at > 0 and (plain[at] == ">" or depth):
        depth += (plain[at] == ">") - (plain[at] == "<")
        at -= 1
    return at


def variable_name(plain: list[str]) -> str:
    end = plain.index("=") if "=" in plain else len(plain)
    while plain[end - 1] == "]":  # of an array
        end = len(plain) - 1 - plain[::-1].index("[", len(plain) - end)
    return plain[end - 1]


def definitions_in(files: list[tuple[str, str]]) -> list[Definition]:
    """Of (name, text) pairs; a macro may be a header's."""
    shared = preprocessed(GOOGLETEST, 0)[1]
    for name, text in files:
        if name.endswith(".h"):
            shared |= preprocessed(text, 0)[1]
    found: dict[Definition, None] = {}
    for name, text in files:
        for side in (0, -1):
            tokens, own = preprocessed(text, side)
            reader = Reader(name, tokens[::-1], shared | own)
            reader.scope("")
            found |= dict.fromkeys(reader.found)
    return list(found)


def are_built_together(file: str, other: str) -> bool:
    versions = {match[1] for match in map(OF_ONE_PYTHON.search, (file, other)) if match}
    return file != other and len(versions) < 2


def complaints(files: list[tuple[str, str]]) -> list[str]:
    found = definitions_in(files)
    one_definition = defined_twice(found) + classes_of_one_name(found)
    return one_definition + clashes_in_rooms(found) + brought_in_twice(files) + hidden_in_rooms(found, files)


def defined_twice(found: list[Definition]) -> list[str]:
    of_name: dict[tuple[str, str], list[Definition]] = defaultdict(list)
    for definition in found:
        if not definition.is_own():
            of_name[definition.scope + definition.name, definition.told_apart_by].append(definition)
    lines = []
    for (name, told_apart_by), all_of_it in sorted(of_name.items()):
        first = all_of_it[0]
        for other in all_of_it[1:]:
            if are_built_together(first.file, other.file):
                how = "the same way" if other.text == first.text else "differently"
                lines.append(f"{other.place()}: {other.kind} {name}{told_apart_by} is defined {how} in {first.place()}")
    return lines


def room_of(file: str) -> str:
    """What is compiled together: a folder of src/, or all tests."""
    folder, *rest = file.split("/")
    return f"{folder}/{rest[0]}" if folder == "src" else folder


def classes_of_one_name(found: list[Definition]) -> list[str]:
    of_name: dict[str, list[Definition]] = defaultdict(list)
    for definition in found:
        if definition.kind in TYPES and definition.name.isidentifier() and room_of(definition.file) != "tests":
            of_name[definition.name].append(definition)
    lines = []
    for name, all_of_it in sorted(of_name.items()):
        first = next((definition for definition in all_of_it if not definition.is_own()), None)
        for other in all_of_it if first else []:
            if other.scope != first.scope:
                lines.append(
                    f"{other.place()}: {other.kind} {name} has the name of {first.scope}{name}, {first.place()}"
                )
    return lines


def clashes_in_rooms(found: list[Definition]) -> list[str]:
    of_name: dict[tuple[str, ...], list[Definition]] = defaultdict(list)
    for definition in found:
        room = room_of(definition.file)
        # A member goes by its class. Whoever writes at::Tensor and whoever writes Tensor mean the same.
        is_macro = definition.kind == "function" and definition.name.isupper()
        if definition.file not in ALONE and not is_macro and "::" not in definition.name:
            parameters = re.sub(r"\w+ :: ", "", definition.told_apart_by)
            # Tests see what src/ exports.
            for place in {room} if definition.is_own() else {room, "tests"}:
                of_name[place, definition.namespace(), definition.name, parameters].append(definition)
    lines = []
    for (_, namespace, name, _), all_of_it in sorted(of_name.items()):
        first = min(all_of_it, key=Definition.is_own)
        for other in all_of_it:
            is_alias = {first.kind, other.kind} == {"alias"} and first.text == other.text
            if other.file != first.file and other.is_own() and other.file.endswith(".cpp") and not is_alias:
                lines.append(
                    f"{other.place()}: {other.kind} {namespace}{name}{other.told_apart_by} clashes with "
                    f"{first.place()} where both are compiled together"
                )
    return lines


def brought_in_twice(files: list[tuple[str, str]]) -> list[str]:
    """`using graph::Node;` here, `using torch::autograd::Node;` there."""
    of_name: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for file, text in files:
        if file.startswith("src/") and file.endswith(".cpp") and file not in ALONE:
            namespace = re.search(r"^namespace ([\w:]+)", text, re.MULTILINE)
            for scope, name in re.findall(r"^using ((?:\w+::)+)(\w+);", text, re.MULTILINE):
                of_name[room_of(file), namespace[1] if namespace else "", name].setdefault(scope, file)
    return [
        f"{other}: {scope}{name} clashes with {first_scope}{name} of {first} where both are compiled together"
        for (_, _, name), ((first_scope, first), *others) in (
            (key, list(scopes.items())) for key, scopes in of_name.items()
        )
        for scope, other in others
    ]


def hidden_in_rooms(found: list[Definition], files: list[tuple[str, str]]) -> list[str]:
    """`number(n, "value")` of a file's own beside a file that calls bolt::number(double)."""
    texts = {file: text for file, text in files if file.endswith(".cpp") and file not in ALONE}
    functions = [d for d in found if d.kind == "function" and d.name.isidentifier()]
    exported = {(d.scope, d.name): d for d in functions if not d.is_own()}
    own = {(d.file, d.name) for d in functions if d.is_own()}
    lines = []
    for hiding in functions:
        room = room_of(hiding.file)
        if not hiding.is_own() or hiding.file not in texts or room == "tests":
            continue
        spaces = hiding.namespace().split("::")[:-1]
        outer = ("".join(f"{s}::" for s in spaces[:depth]) for depth in range(1, len(spaces)))
        hidden = next((exported[o, hiding.name] for o in outer if (o, hiding.name) in exported), None)
        # What has a word before it is declared, not called.
        call = re.compile(rf"^[^/\n]*?(?:\breturn|[^\w\s.>:&*]) *{hiding.name}\(", re.MULTILINE)
        for file, text in texts.items() if hidden else []:
            is_other = room_of(file) == room and (file, hiding.name) not in own
            if is_other and (place := call.search(text)):
                line = text.count("\n", 0, place.end()) + 1
                lines.append(f"{hiding.place()}: {hiding.name} hides {hidden.place()} of {file}:{line} in one unit")
    return lines


def main() -> int:
    files = sorted(file for pattern in READ for file in ROOT.glob(pattern))
    found = complaints([(file.relative_to(ROOT).as_posix(), file.read_text()) for file in files])
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
