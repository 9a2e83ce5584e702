# tests/programs/test_python_programs.py
"""Python as users write it around tensors: control flow, functions, classes, the standard library."""

import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import importlib
import itertools
import math
import operator
import pickle
import random
import subprocess
import sys
import typing
from types import SimpleNamespace

import pytest
import torch
from rows import HIT, MISS, Rows, ints, negative, positive, randn

import torchbolt

ROWS = Rows()
# A class made by the run is another one in every call, and the region that begins after it is tied to it.
CLASSES = dict(expect=(MISS, MISS, MISS), ends="", regions=3)

for text in (
    "sum([x * i for i in range(3)])",
    "sum(x * i for i in range(3))",
    "[y for y in (x, x + 1) if y.dim() == 1]",
    "{k: x * v for k, v in dict(a=1, b=2).items()}",
    "{len(n): x + 1 for n in ('a', 'bb')}",
    "[a * b for a, b in zip([x, x + 1], [2, 3])]",
    "[x + i for i, _ in enumerate('abc')]",
    "[[x * i * j for i in range(2)] for j in range(2)]",
    "list(map(lambda t: t * 2, [x, x + 1]))",
    "list(filter(lambda t: t.dim() == 1, [x, x[None]]))",
    "tuple(x[i] for i in range(2))",
    "functools.reduce(torch.add, [x, x, x])",
    "functools.reduce(lambda a, b: a * b, [x, x + 1], x)",
    "functools.partial(torch.add, x, alpha=2)(x)",
    "functools.partial(functools.partial(torch.clamp, min=0), max=1)(x)",
    "operator.itemgetter(1, 0)([x, x + 1])",
    "operator.attrgetter('T')(x[None])",
    "operator.mul(x, 2) + operator.neg(x)",
    "list(itertools.chain([x], [x + 1]))",
    "[a + b for a, b in itertools.product([x, x + 1], [1, 2])]",
    "[x * sum(p) for p in itertools.combinations(range(3), 2)]",
    "list(itertools.islice(iter([x, x + 1, x + 2]), 2))",
    "[x * n for n in itertools.accumulate([1, 2, 3])]",
    "[x + a - b for a, b in itertools.pairwise([1, 2, 4])]",
    "list(itertools.starmap(torch.add, [(x, 1), (x, 2)]))",
    "max([1, 3, 2]) * x + min(x.shape) + abs(-2) + divmod(7, 2)[1] + pow(2, 3)",
    "any(t.dim() == 2 for t in (x, x[None])) and x + 1",
    "all([t.numel() == 4 for t in (x, x[None])]) and x + 1",
    "sorted([(2, x), (1, x + 1)], key=lambda p: p[0])[0][1] * 2",
    "x * math.sqrt(x.shape[0]) + math.pi + math.prod([2, 3]) + math.ceil(2.5) + math.log2(8)",
    "x * vars(math)['tau'] + ('x' in vars())",
    "x * len(x.shape) + int(True) + float(2) + round(2.567, 1) + bool(3)",
    "f'{x.shape[0]} {x.dtype} {tuple(x.shape)}', x + 1",
    "'%d of %s' % (x.shape[0], 'x'), '{:>5}'.format(3), x + 1",
    "x + 1 if x.shape[0] > 3 else x - 1",
    "(y := x + 1) * y",
    "(lambda *a, k=2, **o: a[0] * k + len(o))(x, 1, k=3, z=4)",
    "(lambda a, /, b, *, c: a + b + c)(x, 1, c=2)",
    "[*[x, x + 1], *(x * 2,)]",
    "{**{'a': x}, 'b': x + 1}",
    "dict(a=x) | {'b': x + 1}",
    "isinstance(x, torch.Tensor) and hasattr(x, 'shape') and callable(torch.add) and x + 1",
    "getattr(torch, 'relu')(x) + getattr(x, 'nothing', 1)",
    "x[slice(1, None)] + x[:-1]",
    "x[...] + x[None, :].squeeze(0)",
    "not x.shape == (4,) or x + 1",
    "1 < x.shape[0] <= 4 and x * 2",
    "type(x)([1.0, 2.0, 3.0, 4.0]) + x",
    "x.shape[0] in (4, 5) and x + 1",
    "list(reversed([x, x + 1]))[0]",
    "x * heapq.nlargest(2, [3, 1, 2])[1] + sum(heapq.merge([1, 4], (2, 3), range(2)))",
    "next(iter([x, x + 1])) + next(iter([]), 2)",
    "torch.Size([2, 2]).numel() * x",
    "x.new_tensor([1, 2, 3, 4]) + x",
    "torch.tensor([len(s) for s in ('a', 'bb', 'ccc', '')]) * x",
    "complex(1, 2).real * x",
    "int('ff', 16) * x + ord('a') + len(hex(255))",
    "'a,b'.split(',') and x * 'abc'.index('c') + 'a b'.count(' ')",
    "bytes([1, 2])[1] * x",
    "set([1, 2, 2]) == {1, 2} and x + len(frozenset('aa'))",
    "collections.Counter('aab')['a'] * x",
    "collections.OrderedDict(a=x)['a'] + 1",
    "collections.deque([x, x + 1], maxlen=1)[0] * 2",
    "collections.defaultdict(list, a=[x])['a'][0] + 1",
    "collections.ChainMap({'a': 1}, {'a': 2, 'b': 3})['b'] * x",
):
    more = {m.__name__: m for m in (collections, functools, heapq, itertools, math, operator, random)}
    ROWS.text(text, x=randn(4), more=more)


ROWS.text(
    "operator.methodcaller('add', 1)(x)", x=randn(4), more=dict(operator=operator), ends="methodcaller", regions=0
)


# -- Statements --------------------------------------------------------------------------------------------------------
@ROWS(randn(4))
def loops_with_break_continue_and_else(x):
    for i in range(5):
        if i == 1:
            continue
        if i == 3:
            break
        x = x + i
    else:
        x = x * 100
    while True:
        x = x * 2
        if x.dim():
            break
    return x


@ROWS(randn(4))
def while_over_a_counter(x):
    n = 3
    while n:
        x = x * n
        n -= 1
    return x


@ROWS(randn(4))
def try_except_else_finally(x):
    log = []
    for key in ("a", "b"):
        try:
            y = {"a": x}[key]
        except KeyError as error:
            log.append(str(error))
        else:
            x = y + 1
        finally:
            log.append(key)
    return x, log


@ROWS(randn(4))
def exceptions_through_calls(x):
    def inner(x):
        if x.dim() == 1:
            raise ValueError("one", x.shape[0])
        return x

    try:
        return inner(x)
    except ValueError as error:
        return x * error.args[1]


@ROWS(randn(4))
def raise_from_and_retry(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as error:
            raise RuntimeError("b") from error
    except RuntimeError as error:
        return x + len(repr(error.__cause__))


@ROWS(randn(4), **CLASSES)
def custom_exceptions(x):
    class Stop(Exception):
        def __init__(self, value):
            super().__init__("stop")
            self.value = value

    try:
        raise Stop(x * 2)
    except Stop as stop:
        return stop.value + 1


@ROWS(randn(4), **CLASSES)
def context_managers(x):
    @contextlib.contextmanager
    def doubled(t):
        yield t * 2

    class Plus:
        def __enter__(self):
            return 1

        def __exit__(self, *error):
            return True

    with doubled(x) as y, Plus() as one:
        y = y + one
        raise ValueError
    with contextlib.suppress(KeyError):
        y = y * 2
        {}["a"]
    with contextlib.nullcontext(3) as k, contextlib.ExitStack() as stack:
        stack.enter_context(Plus())
        y = y * k
    return y


@ROWS(randn(4))
def match_statements(x):
    def kind(value):
        match value:
            case 0 | 1:
                return x + 1
            case [a, b, *rest]:
                return x * a + b + len(rest)
            case {"k": k, **others}:
                return x - k + len(others)
            case str() as s if len(s) > 1:
                return x / len(s)
            case _:
                return x

    return [kind(v) for v in (1, [2, 3, 4], {"k": 5, "l": 6}, "abc", None)]


@ROWS(randn(4))
def closures_and_nonlocal(x):
    total = 0

    def add(n):
        nonlocal total
        total += n
        return x * total

    return [add(1), add(2)], total


@ROWS(randn(4))
def functions_made_in_a_loop(x):
    def scale(by):
        return lambda t: t * by

    for f in [scale(k) for k in range(3)]:
        x = x + f(x)
    return x


@ROWS(randn(4))
def recursion(x):
    def power(t, n):
        return t if n == 1 else t * power(t, n - 1)

    return power(x, 4)


@ROWS(randn(4))
def decorators(x):
    def twice(fn):
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            return fn(fn(*args, **kwargs))

        return wrapped

    @twice
    def step(t):
        return t * 2 + 1

    return step(x), step.__name__


class Refuses:
    def __init__(self):
        self.asked = 0

    def __iter__(self):
        self.asked += 1
        raise ValueError("refused")


@ROWS(randn(4))
def a_chain_begins_each_when_it_gets_there(x):
    refuses = Refuses()
    chained = itertools.chain([2], refuses, [3])
    x = x * next(chained) + refuses.asked
    try:
        next(chained)
    except ValueError as error:
        return x + refuses.asked, str(error), list(chained)


@ROWS.made(randn(2, 4))
def a_chain_of_module_lists():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.ReLU()])
            self.second = torch.nn.ModuleList([torch.nn.Linear(4, 2)])

        def forward(self, x):
            for layer in itertools.chain(self.first, self.second):
                x = layer(x)
            return x

    return Two()


def plus_one(n):
    return n + 1


# The recorded call pickles what stands for the function, which takes other bytes.
@ROWS(randn(4), expect=(MISS, MISS, HIT), regions=2, ends=("_pickle", "a map from outside"))
def a_map_is_pickled(x):
    data = pickle.dumps(map(plus_one, [1, 2]))
    return x * 2, list(pickle.loads(data))


class GivenAll:
    """CPython does not bind what it finds as __get__."""

    __get__ = staticmethod(lambda *given: [type(each).__name__ for each in given])


class GivenToC:
    __get__ = isinstance  # refuses three arguments


class HoldsDescriptors:
    given, refused = GivenAll(), GivenToC()


@ROWS(randn(4), ends="call.staticmethod")
def getters_that_are_no_functions(x):
    errors = []
    for holder in (HoldsDescriptors, HoldsDescriptors()):
        try:
            errors.append(holder.refused)
        except TypeError as error:
            errors.append(str(error))
    return x * 2, HoldsDescriptors.given, HoldsDescriptors().given, errors


def loaded_again(name):
    """Another module of that name, with classes of its own."""
    first = sys.modules.pop(name)
    try:
        return importlib.import_module(name)
    finally:
        sys.modules[name] = first


@ROWS.made(randn(4), regions=2, ends=("graph_break", "call.functools.partial"))
def a_partial_of_another_class():
    partial = loaded_again("_functools").partial
    assert partial is not functools.partial

    def fn(x):
        made = partial(plus_one, 2)
        x = x * 2
        torchbolt.graph_break()
        return x * made(), type(made) is partial

    return fn


@functools.lru_cache
def cached_next(n):
    return n + 1


@functools.lru_cache
def cached_double(n):
    return n * 2


@ROWS(calls=((randn(4), cached_next), (randn(4), cached_double)), expect=(MISS, MISS, HIT, HIT), regions=2)
def caches_that_are_given(x, cached):
    return x * cached(3)


# Another one in each call, that begins empty.
@ROWS(randn(4), expect=(MISS, MISS, MISS), regions=3, ends="_lru_cache_wrapper")
def a_cache_of_its_own_counts(x):
    cached = functools.lru_cache(maxsize=2)(plus_one)
    x = x * 2
    y = x + cached(1) + cached(1) + cached(2)
    return y, tuple(cached.cache_info())


class SaysItHasSlots:
    __slotnames__ = ["width"]

    def __getattr__(self, name):
        if name == "width":
            return 3
        raise AttributeError(name)


@ROWS(randn(4), expect=(MISS, MISS, HIT), ends="__getattr__ during a call of object.__reduce_ex__")
def reduced_with_slots_that_are_named(x):
    return x * 2, SaysItHasSlots().__reduce_ex__(4)[2]


@functools.lru_cache
def cached_width(n):
    return n * 2


@functools.cache
def cached_mask(n):
    return torch.ones(n, n).tril()


@ROWS(randn(4))
def cached_functions(x):
    return x * cached_width(3) + cached_mask(4)


@functools.singledispatch
def describe(value):
    return 0


@describe.register
def _(value: int):
    return value + 1


@describe.register
def _(value: str):
    return len(value)


# Its cache is a WeakKeyDictionary.
@ROWS(randn(4), ends="a dictionary from outside is read by a key that is an object", expect=(MISS, HIT, HIT), regions=3)
def singledispatch(x):
    return x * describe(3) + describe("ab") + describe(2.5)


@ROWS(randn(4))
def heaps(x):
    best = []
    for i, score in enumerate((0.3, 0.1, 0.7)):
        heapq.heappush(best, (score, i, x * i))
    score, _, y = heapq.heappop(best)
    take = iter(best).__next__
    return y * score, take()[2], take()[1], best


@ROWS(randn(4))
def generators(x):
    def halves(t, n):
        for _ in range(n):
            t = t / 2
            sent = yield t
            if sent:
                t = t + sent

    def chained():
        yield from halves(x, 2)
        yield x

    g = halves(x, 3)
    first = next(g)
    second = g.send(1.0)
    return [first, second, *g], tuple(chained()), sum(halves(x, 2))


@ROWS(randn(4))
def star_assignments_and_deletions(x):
    first, *middle, last = x.unbind()
    a, (b, c) = 1, (2, 3)
    del a
    table = {"a": x, "b": x + 1}
    del table["a"]
    items = [x, x * 2, x * 3]
    del items[0], items[-1:]
    return first + last + len(middle), b * c, table, items


@ROWS(randn(4))
def augmented_assignments(x):
    y = x
    y = y + 1
    y *= 2
    y -= 1
    y /= 3
    y **= 2
    n = 7
    n //= 2
    n %= 2
    n <<= 3
    n |= 1
    n ^= 2
    z = [x]
    z += [y]
    z *= 2
    return z, n


@ROWS(randn(4))
def imports_inside(x):
    import math as m

    from torch.nn import functional

    return functional.relu(x) * m.e


@ROWS(randn(4))
def asserts(x):
    assert x.shape[0] == 4, "four"
    assert isinstance(x, torch.Tensor)
    torch._assert(x.dim() == 1, "one")
    return x + 1


@ROWS(randn(4))
def strings_and_bytes(x):
    name = "_".join(["a", "b"]).upper()[::-1]
    return x * len(name.encode()), name, f"{3.14159:.2f}|{name!r:>8}"


# -- Classes -----------------------------------------------------------------------------------------------------------
class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flag(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Config:
    width: int = 4
    scale: float = 0.5
    names: list = dataclasses.field(default_factory=lambda: ["a", "b"])
    color: Color = Color.RED

    @property
    def area(self):
        return self.width**2


@dataclasses.dataclass(frozen=True)
class Frozen:
    k: int = 3


class Point(typing.NamedTuple):
    x: torch.Tensor
    y: int = 2


class Vector:
    __slots__ = ("data",)

    def __init__(self, data):
        self.data = data

    def __add__(self, other):
        return Vector(self.data + (other.data if isinstance(other, Vector) else other))

    def __radd__(self, other):
        return self + other

    def __mul__(self, k):
        return Vector(self.data * k)

    def __getitem__(self, i):
        return self.data[i]

    def __len__(self):
        return self.data.shape[0]

    def __iter__(self):
        return iter(self.data.unbind())

    def __call__(self, f):
        return f(self.data)

    def __eq__(self, other):
        return len(self) == len(other)

    def __bool__(self):
        return True

    def __contains__(self, k):
        return k < len(self)

    def __enter__(self):
        return self.data

    def __exit__(self, *_):
        return False


CONFIG = Config()


@ROWS(randn(4))
def dataclass_from_outside(x):
    return x * CONFIG.width * CONFIG.scale + len(CONFIG.names) + CONFIG.area, CONFIG.color is Color.RED


@ROWS(("scale", randn(4), CONFIG))
def class_patterns_on_what_is_given(command):
    match command:
        case (int(), torch.Tensor(), Config()):
            return 1
        case (str(name), torch.Tensor() as x, Config(width=int(w), color=Color.RED | Color.BLUE, scale=scale)):
            return x * w * scale + len(name)


@ROWS(randn(4))
def dataclass_made_inside(x):
    c = Config(width=x.shape[0], scale=2.0)
    d = dataclasses.replace(c, scale=3.0)
    return x * d.scale * c.area + Frozen().k, c == d, dataclasses.asdict(Frozen(4))


@ROWS(randn(4))
def enums(x):
    return x * Color.BLUE.value + len(Color), Color["RED"], Color(2), (Flag.A | Flag.B).value, Flag.A in Flag(3)


@ROWS(randn(4))
def named_tuples(x):
    p = Point(x * 2)
    q = p._replace(y=5)
    return p, q.x + q.y, p._asdict(), Point._fields


@ROWS(randn(4))
def special_methods(x):
    v = Vector(x) + Vector(x * 2) + 1
    v = 2 + v * 3
    with v as data:
        total = data + v(torch.relu)
    for part in v:
        total = total + part
    return total + v[0] + len(v), v == Vector(x), 3 in v, bool(v)


@ROWS(randn(4), **CLASSES)
def classes_made_inside(x):
    class Base:
        k = 2

        def scale(self, t):
            return t * self.k

    class Derived(Base):
        k = 3

        def scale(self, t):
            return super().scale(t) + 1

    return Derived().scale(x), Derived.__mro__[1].__name__


@ROWS(randn(4), **CLASSES)
def properties_descriptors_and_class_attributes(x):
    class Twice:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, cls):
            return obj.__dict__[self.name] * 2

        def __set__(self, obj, value):
            obj.__dict__[self.name] = value + 1

    class Holder:
        value = Twice()

        @functools.cached_property
        def heavy(self):
            return self.value + 1

    h = Holder()
    h.value = x
    return h.value, h.heavy, h.heavy


@ROWS(randn(4), randn(4, seed=1))
def filled_with_a_tensor(x, y):
    """Which is one of what has an iterator in Python, but nothing that is gone through."""
    return [a * 2 + b for a, b in itertools.zip_longest([x, y], [y], fillvalue=x)]


@ROWS(randn(4))
def simple_namespaces(x):
    space = SimpleNamespace(a=x, b=2)
    space.c = space.a * space.b
    return space.c, space.b


@ROWS(randn(4), **CLASSES)
def abstract_and_generic_classes(x):
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, value: T):
            self.value = value

        def get(self) -> T:
            return self.value

    return Box[torch.Tensor](x).get() * 2


# -- What depends on data ----------------------------------------------------------------------------------------------
@ROWS(calls=((positive(4),), (negative(4),)), expect=(MISS, MISS, HIT, HIT), regions=3, ends="is_nonzero")
def branch_on_a_sum(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


@ROWS(positive(4), ends="is_nonzero", regions=2)
def conditional_expression_on_data(x):
    return x + 1 if (x > 0).all() else x - 1


@ROWS(positive(4), ends="is_nonzero", regions=3)
def and_or_of_tensors(x):
    if (x > 0).all() and (x < 100).all():
        return x * 2
    return x


@ROWS(positive(4))
def assert_on_data(x):
    y = x + 1
    if not (y > 0).all():
        raise AssertionError
    return y * 2


@ROWS(positive(4))
def python_list_of_data(x):
    return [v * 2 for v in (x + 1).tolist()]


@ROWS(ints(16, below=3))
def indices_of_a_mask(i):
    return (i * 2).nonzero() + 1


@ROWS(randn(16))
def selection_by_a_mask(x):
    y = x * 2
    return y[y > 0] + 1


@dataclasses.dataclass
class Operation:
    kind: str
    by: float = 1.0
    part: tuple = ()


def carried_out(x, operation):
    match operation:
        case Operation("scale", by):
            return x * by
        case Operation(kind="shift", by=by) if by > 0:
            return x + by
        case Operation("part", part=(first, last)):
            return x[first:last]
        case {"power": by, **rest}:
            return x.abs() ** by * len(rest)
        case float(by):
            return x - by
        case [*several]:
            return functools.reduce(carried_out, several, x)
    return x


@ROWS(
    calls=[
        (randn(6), [Operation("scale", 1.5 + i), Operation("shift", i - 0.5), {"power": 2.5, "n": 1}, 0.5 * i])
        for i in range(1, 5)
    ],
    expect=(MISS, MISS, HIT, HIT),
    regions=2,
)
def patterns_of_numbers_that_differ(x, operations):
    return carried_out(x, operations)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_python_programs(row):
    row.check()


def test_modules_are_found_from_code_without_builtins(tmp_path):
    """A namedtuple's __new__ knows no __import__; the first deque of the process is asked for while it runs."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import collections
import torch
import torchbolt

Pair = collections.namedtuple("Pair", "left right")
queue = collections.deque(maxlen=2)


def fn(x):
    pair = Pair(x, [x])
    queue.append(len(pair.right))
    return pair.left + len(queue)


compiled = torchbolt.compile(fn, fullgraph=True)
assert [float(compiled(torch.ones(()))) for _ in range(3)] == [2, 3, 3] and list(queue) == [1, 1]
"""
    )
    subprocess.run([sys.executable, script], check=True)
