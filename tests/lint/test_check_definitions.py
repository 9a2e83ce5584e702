# tests/lint/test_check_definitions.py
"""scripts/check_definitions.py finds what is defined twice, and nothing else."""

import pytest
from lint_scripts import load

check = load("check_definitions")


def found(first, second):
    return check.complaints([("src/a.h", first), ("src/b.h", second)])


def inside(text, name="bolt"):
    return f"namespace {name} {{ {text} }}"


TWICE = [
    ("struct S { int a; };", "struct S { long a; };"),
    ("class BOLT_API S final : B<int> { S() : a_(1) {} };", "class S { };"),
    ("struct S { int a; };", "struct S { int a; };"),
    ("struct S { int a; };", "using S = int;"),
    ("enum class E : int { a, b };", "enum class E : int { b, a };"),
    ("union U { int a; };", "union U { float a; };"),
    ("typedef int T;", "using T = long;"),
    ("template <> struct H<int> { int a; };", "template <> struct H< int > { long a; };"),
    ("template <class T> concept C = true;", "template <class T> concept C = false;"),
    ("inline int f(int a, const S& s = {}) { return a; }", "inline int f(int b, const S&) { return b + 1; }"),
    ("inline int f(std::function<void(int)> g) { return 1; }", "int f(std::function<void(int)> h) { return 2; }"),
    ("template <class T> int f(T t) { return 1; }", "template <class U> int f(T t) { return 2; }"),
    ("inline S::S(int a) : a_{a}, b_(a) { go(); }", "inline S::S(int a) : a_{a} {}"),
    ("inline bool S::operator()(int a) const { return a; }", "inline bool S::operator()(int a) const { return !a; }"),
    ("inline S::~S() { a(); }", "inline S::~S() { b(); }"),
    ("inline bool operator<(S a, S b) { return 1; }", "inline bool operator<(S a, S b) { return 0; }"),
    ("inline int x = 1;", "inline int x = 2;"),
    ("int before = 1 < 2; struct S { int a; };", 'auto t = R"(} # not code {)"; struct S {};'),
]


@pytest.mark.parametrize(("first", "second"), TWICE)
def test_two_definitions_are_found(first, second):
    lines = found(inside(first), inside(second))
    assert len(lines) == 1, lines
    assert lines[0].startswith("src/b.h:1: ")
    assert ("the same way" in lines[0]) == (first == second)


ONCE = [
    ("struct S;", "struct S { int a; };"),
    ("enum class E : int;", "enum class E : int { a };"),
    ("int f(int a);", "inline int f(int a) { return a; }"),
    ("inline int f(int a) { return a; }", "inline int f(long a) { return 1; }"),
    ("inline int f(int a) { return a; }", "inline int f(int a, int b) { return 1; }"),
    ("inline int f(const A& a) { return a; }", "inline int f(const B& a) { return 1; }"),
    ("inline int f(const A&) { return a; }", "inline int f(const B&) { return 1; }"),
    ("inline int A::f() { return 1; }", "inline int B::f() { return 2; }"),
    ("inline int A<T>::f() { return 1; }", "inline int B<T>::f() { return 2; }"),
    (
        "template <class T> int f(T t) requires A<T> { return 1; }",
        "template <class T> int f(T t) requires B<T> { return 2; }",
    ),
    ("template <> struct H<int> { int a; };", "template <> struct H<long> { long a; };"),
    ("static int f() { return 1; }", "static int f() { return 2; }"),
    ("namespace { struct S { int a; }; }", "namespace { struct S { long a; }; }"),
    ("namespace one { using S = int; }", "using S = long;"),
    ("namespace one { int f(int a) { return a; } }", "int f(int b) { return b; }"),
    ("struct A { struct S { int a; }; };", "struct B { struct S { long a; }; };"),
    ("// struct S { int a; };", "struct S { /* } */ long a; };"),
    ("constexpr int kSize = 1;", "constexpr int kSize = 2;"),
    ("using namespace a; using a::b;", "using namespace c; using c::b;"),
]


@pytest.mark.parametrize(("first", "second"), ONCE)
def test_other_pairs_are_let_through(first, second):
    assert not found(inside(first), inside(second))


def test_namespaces_are_compared_by_their_whole_names():
    alias = "using S = int;"
    assert found(inside(alias, "bolt::loops"), inside(inside(alias, "loops")))
    assert not found(inside(alias, "bolt::loops"), inside(alias, "bolt::graph"))


@pytest.mark.parametrize("other", ["struct S { int a; };", "enum class S { a };", "namespace { class S {}; }"])
def test_a_class_of_another_namespace_has_another_name(other):
    lines = found(inside("struct S { int a; };", "bolt::loops"), inside(other, "bolt::graph"))
    assert lines == [f"src/b.h:1: {lines[0].split()[1]} S has the name of bolt::loops::S, src/a.h:1"]


@pytest.mark.parametrize("other", ["struct S;", "namespace { struct T {}; }", "struct T { struct S {}; };", "int S();"])
def test_what_is_no_class_of_that_name_is_let_through(other):
    assert not found(inside("struct S { int a; };", "bolt::loops"), inside(other, "bolt::graph"))


def clashes(first, second, room="run"):
    return check.complaints([("src/run/a.cpp", inside(first)), (f"src/{room}/b/c.cpp", inside(second))])


CLASHES = [
    ("namespace { int f(int a) { return a; } }", "namespace { int f(int b) { return b; } }"),
    ("namespace { int f(at::Tensor a) { return 1; } }", "static int f(Tensor a) { return 2; }"),
    ("namespace { int f(int a) { return a; } }", "int f(int b) { return b; }"),
    ("namespace { struct S { int a; }; }", "namespace { struct S { long a; }; }"),
    ("namespace { constexpr int kSize = 1; }", "constexpr int kSize = 2;"),
    ("namespace { const Rows kRows[] = {1}; }", "namespace { std::array<int, 2> kRows{}; }"),
    ("namespace { Rows* rows = new Rows(1); }", "namespace { auto rows = [](int a) { return a; }; }"),
    ("namespace { using S = int; }", "namespace { using S = long; }"),
]


@pytest.mark.parametrize(("first", "second"), CLASHES)
def test_files_of_a_room_have_names_of_their_own(first, second):
    assert len(clashes(first, second)) == 1
    assert not clashes(first, second, room="loops")


NO_CLASHES = [
    ("namespace { int f(int a) { return a; } }", "namespace { int f(long a) { return 1; } }"),
    ("namespace { int f(int a) { return a; } }", "int f(int a);"),
    ("namespace { int f(int a) { return a; } }", "namespace { int f(int a = 1); extern int g; }"),
    ("namespace { struct S { int f() { return 1; } }; }", "namespace { struct T { int f() { return 2; } }; }"),
    ("namespace { using S = int; }", "namespace { using S = int; }"),
    ("namespace { constexpr int kSize = 1; }", "namespace one { constexpr int kSize = 2; }"),
    ("namespace { constexpr int kA = int{1} << 2; }", "namespace { constexpr int kB = int{3} << 2; }"),
    ("namespace { TORCH_LIBRARY(bolt, m) { m.def(1); } }", "namespace { TORCH_LIBRARY(bolt, m) { m.def(2); } }"),
]


@pytest.mark.parametrize(("first", "second"), NO_CLASHES)
def test_other_names_of_a_room_are_let_through(first, second):
    assert not clashes(first, second)


def test_one_name_is_brought_in_from_one_namespace():
    def lines(second, room="run"):
        files = ("src/run/a.cpp", "using graph::Node;"), (f"src/{room}/b.cpp", second)
        return check.complaints([(file, f"namespace bolt {{\n{text}\n}}") for file, text in files])

    assert len(lines("using torch::autograd::Node;")) == 1
    assert not lines("using graph::Node;") and not lines("using torch::autograd::Node;", room="loops")


@pytest.mark.parametrize(
    ("other", "is_hidden"),
    [
        ("int g() { return number(1.5); }", True),
        ("int g(R r) { return r.number(1.5) + other::number(2); }", False),
        ("namespace { double number(double a) { return a; } int h() { return number(1.5); } }", False),
        ("struct R { int number(int a); };", False),
    ],
)
def test_a_name_of_an_enclosing_namespace_is_not_hidden(other, is_hidden):
    own, outer = "namespace { int number(int a, int b) { return a; } }", "std::string number(double a) { return {}; }"

    def lines(room):
        exported = ("src/support/text.cpp", inside(outer)), ("src/run/a.cpp", inside(own, "bolt::run"))
        return check.complaints([*exported, (f"src/{room}/b.cpp", inside(other, "bolt::run"))])

    assert bool([line for line in lines("run") if " hides " in line]) == is_hidden
    assert not [line for line in lines("loops") if " hides " in line]


def clashes_of_tests(first, second, place="tests/gemm/b_test.cpp"):
    return check.complaints([("tests/loops/a_test.cpp", inside(first)), (place, inside(second))])


OF_TESTS = [
    *CLASHES,
    ("namespace { TEST(Suite, Name) { f(1); } }", "namespace { TEST(Suite, Name) { f(2); } }"),
    ("namespace { TEST_F(Suite, Name) {} }", "namespace { struct Suite_Name_Test {}; }"),
]


@pytest.mark.parametrize(("first", "second"), OF_TESTS)
def test_tests_have_names_of_their_own_whatever_their_folders(first, second):
    assert len(clashes_of_tests(first, second)) == 1


NOT_OF_TESTS = [
    *NO_CLASHES,
    ("namespace { TEST(Suite, Name) { f(1); } }", "namespace { TEST(Suite, Other) { f(2); } }"),
    # A test's class may have a common name.
    ("struct S { int a; };", "namespace one { struct S { int a; }; }"),
]


@pytest.mark.parametrize(("first", "second"), NOT_OF_TESTS)
def test_other_names_of_tests_are_let_through(first, second):
    assert not clashes_of_tests(first, second)


def test_tests_see_what_is_exported_and_nothing_else():
    own, exported = "namespace { int f(int a) { return a; } }", "int f(int b) { return b; }"
    assert len(clashes_of_tests(own, exported, place="src/loops/b.cpp")) == 1
    assert not clashes_of_tests(own, own, place="src/loops/b.cpp")


def test_what_a_macro_makes_is_a_definition():
    macro = "#define RULE(name, ...) \\\n  struct name##Rule { __VA_ARGS__ };\n"
    made, written = macro + inside("RULE(Add, int a; int b;)"), inside("struct AddRule { int a; };")
    assert len(found(made, written)) == 1
    assert not found(made, inside("struct MulRule { int a; };"))
    assert found(macro, "") == []
    assert len(check.complaints([("src/a.h", made), ("src/b.cpp", inside("RULE(Add, long a;)"))])) == 1


def test_both_sides_of_an_if_are_read():
    either = inside("\n#if A\nstruct S { int a; };\n#else\nstruct S { long a; };\nstruct T {};\n#endif\n")
    assert not found(either, "")
    assert len(found(either, inside("struct T { int a; };"))) == 1


def test_files_for_different_pythons_are_never_built_together():
    one, other = inside("struct S { int a; };"), inside("struct S { long a; };")
    assert not check.complaints([("src/only_311.h", one), ("src/only_312.h", other)])
    assert check.complaints([("src/only_311.h", one), ("src/any.h", other)])
