# tests/interp/test_language.py
"""Every kind of statement and expression: our interpreter against CPython on the same function."""

import collections
import dataclasses
import enum
import functools
import sys
import types

import pytest


def arithmetic(a, b):
    x = a + b, a - b, a * b, a / b, a // b, a % b, a**2, -a, +a, ~int(a)
    y = int(a) << 2, int(a) >> 1, int(a) & 6, int(a) | 8, int(a) ^ 3
    c = a
    c += b
    c -= 1
    c *= 2
    c /= 3
    c //= 1
    c **= 2
    return x, y, c, a < b, a <= b, a == b, a != b, a > b, a >= b, not a


@pytest.mark.parametrize("args", [(7, 3), (7.5, -2.0), (2**70, 3), (-5, 2**65), (True, 2)])
def test_arithmetic(same, args):
    same(arithmetic, *args)


def control(n):
    out = []
    for i in range(n):
        if i % 3 == 0:
            continue
        elif i > 11:
            break
        out.append(i if i % 2 else -i)
    else:
        out.append("else")
    k = 0
    while k < 5 and not (k == 4 or n is None):
        k += 1
    return out, k, [x for x in out if x], {x: y for x, y in zip(out, range(3))}, {x % 2 for x in range(9)}


@pytest.mark.parametrize("n", [0, 3, 30])
def test_control_flow(same, n):
    same(control, n)


def unpacking(values):
    a, *b, c = values
    (d, e), f = (a, c), b
    first, second = "xy"
    return a, b, c, d, e, f, first, second, [*values, *b], {**{"k": a}, "l": c}, (*b, 1)


def test_unpacking(same):
    same(unpacking, [1, 2, 3, 4])
    same(lambda: unpacking(i for i in range(1)))
    same(unpacking, 5)
    same(lambda: [a for a, b in [(1, 2), (3,)]])
    same(lambda: [a for a, b in [(1, 2, 3)]])


def keywords(a, /, b, c=3, *rest, d, e=5, **more):
    return a, b, c, rest, d, e, more


def test_argument_binding(same):
    call = keywords
    same(call, 1, 2, d=4)
    same(call, 1, b=2, d=4, f=6)
    same(call, 1, 2, 3, 4, 5, d=6, a=7)
    for arguments, named in [
        ((), {}),
        ((1,), {}),
        ((1, 2), {}),
        ((1, 2), {"d": 1, "b": 2}),
        ((1, 2, 3), {"e": 1}),
    ]:
        same(call, *arguments, **named)


def two(a, b):
    return a, b


def default(a, b=2):
    return a, b


def only(a, *, key, other):
    return a, key, other


def positional(a, b, /):
    return a, b


@pytest.mark.parametrize(
    "call",
    [
        lambda: two(1),
        lambda: two(),
        lambda: two(1, 2, 3),
        lambda: two(1, 2, c=3),
        lambda: two(1, a=1),
        lambda: default(),
        lambda: default(1, 2, 3),
        lambda: only(1),
        lambda: only(1, 2, key=3),
        lambda: only(1, key=3),
        lambda: positional(a=1, b=2),
        lambda: positional(1, b=2),
        lambda: two(*(1, 2)),
        lambda: two(*[1], **{"b": 2}),
        lambda: two(*5),
        lambda: two(**5),
        lambda: two(1, **{"b": 1}, **{"b": 2}),
        lambda: two(1, **{1: 2}),
        lambda: (lambda *a, **k: (a, k))(1, *[2, 3], x=4, **{"y": 5}),
        lambda: functools.partial(two, 1)(2),
        lambda: functools.partial(keywords, 1, d=2)(3, d=4, z=5),
        lambda: None(),
    ],
)
def test_calls(same, call):
    same(call)


class Mapped:
    """A mapping in Python; what is asked of it is written down."""

    def __init__(self, **items):
        self.items, self.asked = items, []

    def keys(self):
        self.asked.append("keys")
        yield from self.items

    def __getitem__(self, key):
        self.asked.append(key)
        value = self.items[key]
        if isinstance(value, type):
            raise value(key)
        return value


class OtherKeys(dict):
    def __iter__(self):
        return iter("ab")

    def __getitem__(self, key):
        return key * 2


class OtherItems(dict):
    def __getitem__(self, key):
        raise AssertionError("C takes the entries as they lie there")


MAPPINGS = {
    "plain": lambda: Mapped(a=1, b=2),
    "user_dict": lambda: collections.UserDict(a=1, b=2),
    "chain": lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    "proxy": lambda: types.MappingProxyType({"a": 1, "b": 2}),
    "other_keys": lambda: OtherKeys(a=1, b=2),
    "other_items": lambda: OtherItems(a=1, b=2),
    "attribute_error": lambda: Mapped(a=1, b=AttributeError),
    "key_error": lambda: Mapped(a=1, b=KeyError),
    "value_error": lambda: Mapped(a=1, b=ValueError),
    "no_keys": lambda: object(),
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_entries_of_a_mapping(same, name):
    """`{**mapping}` and `f(**mapping)`: all keys first, then an item for each; errors are CPython's."""

    def entries(use):
        mapping = MAPPINGS[name]()
        return use(mapping), getattr(mapping, "asked", None)

    same(entries, lambda mapping: two(**mapping))
    same(entries, lambda mapping: two(**mapping, **{}))
    same(entries, lambda mapping: list({"b": 3, **mapping, "c": 4}.items()))
    same(entries, lambda mapping: two(**{"a": 3}, **mapping))


class Vector:
    count = 0

    def __init__(self, x, y=0):
        self.x, self.y = x, y
        Vector.count += 1

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y) if isinstance(other, Vector) else NotImplemented

    def __radd__(self, other):
        return Vector(self.x + other, self.y + other)

    def __mul__(self, k):
        return Vector(self.x * k, self.y * k)

    def __iadd__(self, other):
        self.x += other
        return self

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    def __lt__(self, other):
        return self.x < other.x

    def __getitem__(self, i):
        return (self.x, self.y)[i]

    def __setitem__(self, i, value):
        if i:
            self.y = value
        else:
            self.x = value

    def __len__(self):
        return 2

    def __iter__(self):
        yield self.x
        yield self.y

    def __contains__(self, value):
        return value in (self.x, self.y)

    def __bool__(self):
        return bool(self.x or self.y)

    def __neg__(self):
        return Vector(-self.x, -self.y)

    def __call__(self, *args, scale=1):
        return [a * scale for a in args] + list(self)

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(name)

    @property
    def norm(self):
        return self.x * self.x + self.y * self.y

    @norm.setter
    def norm(self, value):
        self.x = value

    @classmethod
    def unit(cls):
        return cls(1)

    @staticmethod
    def zero():
        return Vector(0)

    def __repr__(self):
        return f"V({self.x}, {self.y!r:>3})"

    def __format__(self, spec):
        return f"<{spec}>"


class Sub(Vector):
    def __init__(self, *args):
        super().__init__(*args)
        self.extra = super().norm

    def __radd__(self, other):
        return "sub"


def objects():
    a, b = Vector(1, 2), Vector(3)
    c = a + b
    c += 10
    c.norm = 5
    c[1] = 9
    s = Sub(2, 3)
    return (
        (c.x, c.y, a == b, a < b, a[0], len(a), list(a), 3 in b, bool(Vector.zero()), (-a).x),
        (a(1, 2, scale=3), a.dyn_hello, a.norm, Vector.unit().x, f"{a} {a!r} {a:spec}", sum([a, b]).x),
        (s.extra, a + s, 5 + a == Vector(6, 7), [*a], isinstance(s, Vector), hasattr(a, "nope")),
    )


def test_special_methods(same):
    same(objects)
    same(lambda: Vector(1) + "x")
    same(lambda: Vector())
    same(lambda: Vector(1).missing)
    same(lambda: Vector(1) < 3)
    same(lambda: Vector(1) @ Vector(1))


def closures(n):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return lambda: total + n

    readers = [add(i) for i in range(n)]
    return total, [r() for r in readers], [f() for f in [lambda i=i: i for i in range(3)]]


def test_closures(same):
    same(closures, 4)


def unbound(flag):
    if flag:
        x = 1
    return x


def unbound_free():
    def inner():
        return late

    value = inner()
    late = 1
    return value, late


def test_unbound_names(same):
    same(unbound, True)
    same(unbound, False)
    same(unbound_free)
    same(lambda: undefined_name)  # noqa: F821


def classes():
    base = 3

    class Meta(type):
        def __new__(mcls, name, bases, space, **kw):
            space["tag"] = kw.get("tag")
            return super().__new__(mcls, name, bases, space)

        def __call__(cls, *args):
            return super().__call__(*args), "called"

    class A(metaclass=Meta, tag=base):
        value: int = base

        def get(self):
            return __class__.__name__, self.value

    @dataclasses.dataclass
    class D:
        a: int
        b: list = dataclasses.field(default_factory=list)

    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    a, note = A()
    return (
        A.tag,
        a.get(),
        note,
        repr(D(1)),
        D(1) == D(1, []),
        Color.RED.value,
        Color(2).name,
        A.__annotations__,
    )


def test_classes(same):
    same(classes)


def matching(x):
    match x:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return "large", n
        case [a, *rest]:
            return "list", a, rest
        case {"k": v, **rest}:
            return "dict", v, rest
        case Vector(x=1, y=y):
            return "vector", y
        case str() as s:
            return "str", s
        case None:
            return "none"
        case _:
            return "other"


@pytest.mark.parametrize("x", [0, 1, 50, 500, [1, 2, 3], [], {"k": 1, "m": 2}, {}, "s", None, 2.5, Vector(1, 7)])
def test_match(same, x):
    same(matching, x)


def formatting(x):
    return f"{x}{x!r:>10}{x!s}{x!a} {1.5:.{2}f} {x=}", "%s-%d" % (x, 3), f"{7:>4}"


def test_formatting(same):
    same(formatting, "é")


def imports():
    import os.path as path
    from collections import OrderedDict, deque  # noqa: F401

    try:
        from os import not_there  # noqa: F401
    except ImportError as error:
        message = str(error).split("(")[0]
    return path.join("a", "b"), OrderedDict(a=1), message


def test_imports(same):
    same(imports)


def introspection(a, b=2):
    c = a + b
    frame = sys._getframe()
    return (
        sorted(locals()),
        frame.f_code.co_name,
        frame.f_lineno,
        frame.f_locals["c"],
        eval("a + c"),
        sorted(dir())[:3],
    )


def test_frames_are_real(same):
    same(introspection, 1)


def walrus(values):
    return [y for x in values if (y := x * 2) > 2], y


def test_walrus(same):
    same(walrus, [1, 2, 3])


def loops_with_del():
    x = [1, 2, 3]
    del x[0], x[-1]
    y = {"a": 1}
    del y["a"]
    z = Vector(1)
    del z.x
    a = b = 1
    del a
    return x, y, hasattr(z, "dyn_x"), b, x[0:1], x[::-1]


def test_delete(same):
    same(loops_with_del)


class Asked:
    """Its operators say who was asked, and answer where `knows` says so."""

    log: list = []

    def __init__(self, name, knows=()):
        self.name, self.knows = name, knows

    def ask(self, method):
        self.log.append((self.name, method))
        return f"{self.name}.{method}" if method in self.knows else NotImplemented

    def __add__(self, other):
        return self.ask("add")

    def __radd__(self, other):
        return self.ask("radd")

    def __iadd__(self, other):
        return self.ask("iadd")

    def __lt__(self, other):
        return self.ask("lt")

    def __gt__(self, other):
        return self.ask("gt")

    def __eq__(self, other):
        return self.ask("eq")


class MoreAsked(Asked):
    def __radd__(self, other):
        return self.ask("radd of a subclass")

    def __getitem__(self, key):
        return self.ask("getitem"), key

    @property
    def answer(self):
        return self.ask("answer")


def who_is_asked(left, right):
    out = []
    Asked.log.clear()
    for operate in (lambda: left + right, lambda: left < right, lambda: left == right):
        try:
            out.append(operate())
        except TypeError as error:
            out.append(str(error))
    try:
        left += right
    except TypeError as error:
        out.append((str(error), error.__traceback__.tb_lineno))
    return out, list(Asked.log), left


@pytest.mark.parametrize("knows", [(), ("add",), ("radd", "gt"), ("radd of a subclass",), ("iadd", "eq"), ("lt",)])
@pytest.mark.parametrize(
    "left, right", [(Asked, Asked), (Asked, MoreAsked), (MoreAsked, Asked), (Asked, None), (None, Asked)]
)
def test_operands_are_asked_in_order(same, left, right, knows):
    a = left("a", ("iadd",) if "iadd" in knows else ()) if left else 1.5
    b = right("b", knows) if right else "text"

    def run():
        out, log, last = who_is_asked(a, b)
        return out, log, isinstance(last, Asked) or last

    same(run)


def items_and_properties():
    Asked.log.clear()
    a = MoreAsked("a", ("answer", "getitem"))
    return a[1], a[1:2], a.answer, list(Asked.log)


def test_items_and_properties(same):
    same(items_and_properties)


class Unbound:
    """CPython takes a comparison that cannot be bound for none; of other operators the error is told."""

    @property
    def __eq__(self):
        raise AttributeError("no comparison")

    __lt__ = __add__ = __eq__


@pytest.mark.parametrize("operate", ["a == b", "a != b", "a == a", "a < b", "1 == a", "a + b"])
def test_methods_that_cannot_be_bound(same, operate):
    same(eval("lambda a, b: " + operate), Unbound(), Unbound())


class Deep:
    """Every operator leads to the next one."""

    def __add__(self, n):
        return self + (n - 1) + 1 if n else 0

    def __getitem__(self, n):
        return self[n - 1] + 1 if n else 0

    def __lt__(self, n):
        return self < n - 1 if n else "deep"

    @property
    def depth(self):
        self.n -= 1
        return self.depth + 1 if self.n else 1


def deep_operators(n):
    a = Deep()
    a.n = n
    return [a + n, a.depth, a[n], a < n]


# CPython itself would run out of it.
def test_operators_need_no_stack_of_c(run):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        assert run(deep_operators, 50_000) == [50_000, 50_000, 50_000, "deep"]
    finally:
        sys.setrecursionlimit(limit)


class Own:
    kind = "class"

    def __init__(self, *names):
        for name in names:
            setattr(self, name, name)

    def first(self):
        self.a, self.b = "a", self.kind


class Slotted:
    __slots__ = ("x", "y")


def touch(thing):
    thing.x = getattr(thing, "x", 0) + 1
    try:
        return thing.x, thing.y
    except AttributeError as error:
        return str(error)


def places_of_attributes():
    """Runs the instructions that load attributes with objects whose attributes lie elsewhere, or nowhere, or move."""
    out = []
    one, two, slotted, other = Own("x", "y"), Own("y", "x"), Slotted(), type("Other", (Own,), {"y": 5})()
    for thing in (one, two, one, slotted, slotted, other, other, one):
        out.append(touch(thing))
    slotted.y = 3
    out += [touch(slotted), touch(slotted)]
    Own.y = property(lambda self: "property")
    out += [touch(one), touch(two)]
    del Own.y
    out += [touch(one), vars(two), touch(two), touch(two)]
    two.__dict__ = {"y": 0}
    out += [touch(two), touch(two)]
    del one.x
    out += [touch(one), list(vars(one))]
    for _ in range(3):
        new = Own()
        new.first()
        out.append(list(vars(new).items()))
        new.first()
    Own.a = property(lambda self: 1, lambda self, value: out.append(value))
    new = Own()
    new.first()
    del Own.a
    out.append(list(vars(new)))
    return out


def test_places_of_attributes(same):
    same(places_of_attributes)
    same(places_of_attributes)
