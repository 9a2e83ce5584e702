# tests/lint/test_check_limits.py
"""scripts/check_limits.py counts the methods of a class, and nothing else of it."""

import pytest
from lint_scripts import load

load("check_definitions")
check = load("check_limits")

METHODS = [
    ("int f(); void g() const { h(1); } bool on = true;", 2),
    ("explicit S(int a) : a_{a}, b_(a) {} ~S(); S& operator=(const S&) = delete; int a_, b_;", 3),
    ("std::function<void(int)> f; std::map<int, int> g{h()}; const bool y = is(1); int z[f(2)];", 0),
    ("struct T { int f(); int g(); }; enum class E : int { a, b }; E e = E::a; T t;", 0),
    ("public: template <class E> void each(E e) const; private: friend class U; using F = int (*)(int);", 1),
    ("[[gnu::cold]] void f(int a = g(1)); virtual std::vector<int> h(std::pair<int, int> p) = 0; int i() override;", 3),
    ("bool operator==(const S&) const = default; void operator()(int) const; static_assert(sizeof(int) == 4);", 2),
]


@pytest.mark.parametrize(("members", "methods"), METHODS)
def test_methods_are_counted(members, methods):
    text = f"namespace bolt {{ class S final : public B<S, int>, public C {{ {members} }}; }}"
    assert check.classes_in(text)["S"] == methods


def test_what_is_too_large_or_gone_is_told(monkeypatch):
    monkeypatch.setattr(check, "LINES", {"map.cpp": 2})
    monkeypatch.setattr(check, "METHODS", {"run/": {"S": 1, "T": 1}})
    files = {"map.cpp": "a\nb\n", "run/s.h": "class S { int f(); int g(); };"}
    lines = check.complaints(files)
    assert [line.split(":")[0] for line in lines] == ["src/map.cpp", "src/run/s.h", "scripts/check_limits.py"]


def test_classes_that_are_not_named_have_a_limit(monkeypatch):
    monkeypatch.setattr(check, "LINES", {})
    monkeypatch.setattr(check, "METHODS", {"run/": {"S": 3}})
    monkeypatch.setattr(check, "MOST_METHODS", 2)
    three = "{ int f(); int g(); int h(); };"
    assert check.complaints(
        {"run/s.h": f"class S {three}", "run/t.cpp": f"class T {three} class U {{ int f(); }};"}
    ) == ["src/run/t.cpp: T has 3 methods; the limit is 2"]
