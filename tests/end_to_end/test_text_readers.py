# tests/end_to_end/test_text_readers.py
"""Everything that may read a text which differs between calls: each call gets what eager gives for its own.

test_texts.py says what need not make a program of its own; here only the results count. A row is a function of a
tensor and of a text; where the text comes from is a table, too.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import importlib
import itertools
import json
import operator
import re
import string
import sys
import types

import pytest
import torch

import torchbolt


class E(enum.Enum):
    ONE = "one"
    TWO = "two"
    THREE = "three"


class H:
    one = 1
    two = 2
    three = 3


@dataclasses.dataclass
class D:
    a: str
    b: int = 0


NT = collections.namedtuple("NT", "a b")
D1 = {"one": 1, "two": 2, "three": 3}
one = 11
two = 22
three = 33
WORDS = ["one", "two", "three", "one", "three", "two", "two", "one"]


def _try(w):
    try:
        return D1[w + "x"]
    except KeyError as e:
        return str(e), e.args


def _raise(w):
    try:
        raise ValueError(w)
    except ValueError as e:
        return e.args, str(e)


def _iadd(w):
    s = "a"
    s += w
    s += w
    return s, len(s)


@functools.lru_cache
def _lru(w):
    return w + "!"


READERS = {
    "map_list": lambda x, w: list(map(str.upper, [w, "a"])),
    "map_len": lambda x, w: list(map(len, [w, "a"])),
    "map_get": lambda x, w: list(map(D1.get, [w, "a"])),
    "sorted_key": lambda x, w: sorted([w, "abcd"], key=len),
    "sorted": lambda x, w: sorted([w, "p", "a"]),
    "sorted_t": lambda x, w: sorted([(w, 1), ("p", 2)]),
    "max_key": lambda x, w: max([w, "abcd"], key=len),
    "max": lambda x, w: max([w, "p"]),
    "filter": lambda x, w: list(filter(None, [w, ""])),
    "filterf": lambda x, w: list(filter(D1.__contains__, [w, ""])),
    "any": lambda x, w: any([w, ""]),
    "all": lambda x, w: all(c in D1 for c in [w]),
    "joinmap": lambda x, w: ",".join(map(str, [w, 1])),
    "joingen": lambda x, w: ",".join(c for c in [w, "1"]),
    "dictzip": lambda x, w: dict(zip([w, "a"], [1, 2])),
    "set": lambda x, w: sorted(set([w, "a", "one"])),
    "Counter": lambda x, w: dict(collections.Counter([w, "one"])),
    "OD": lambda x, w: collections.OrderedDict([(w, 1), ("one", 3)]),
    "dd": lambda x, w: (lambda d: (d[w].append(1), dict(d))[1])(collections.defaultdict(list)),
    "groupby": lambda x, w: [k for k, _ in itertools.groupby([w, "one"])],
    "partial": lambda x, w: functools.partial(getattr, H)(w),
    "partial2": lambda x, w: functools.partial(D1.get, w)(),
    "attrgetter": lambda x, w: operator.attrgetter(w)(H),
    "itemgetter": lambda x, w: operator.itemgetter(w)(D1),
    "eq": lambda x, w: (
        operator.eq(w, "one"),
        operator.contains(D1, w),
        operator.getitem(D1, w),
        operator.concat(w, "a"),
        operator.mod("%s", w),
    ),
    "Enum": lambda x, w: E(w).name,
    "Enum2": lambda x, w: E[w.upper()].value,
    "device": lambda x, w: str(torch.device("cpu" if w == "one" else "meta")),
    "fmt": lambda x, w: "{a}{b}".format(a=w, b=1),
    "fmt2": lambda x, w: "%(a)s" % {"a": w},
    "fmt3": lambda x, w: "{0.a}".format(D(w)),
    "fmt4": lambda x, w: f"{D(w)}",
    "Template": lambda x, w: string.Template("$a").substitute(a=w),
    "re": lambda x, w: bool(re.match("o", w)),
    "re2": lambda x, w: re.sub("o", "0", w),
    "json": lambda x, w: json.dumps({"a": w}),
    "hash": lambda x, w: hash((w, 1)) == hash(("one", 1)),
    "tkey": lambda x, w: {("one", 1): 5}.get((w, 1)),
    "teq": lambda x, w: ((w, 1) == ("one", 1), [w] < ["p"], (w,) != ("two",), [w] == ["one"], {"a": w} == {"a": "one"}),
    "deq": lambda x, w: (D(w) == D("one"), NT(w, 1) == NT("one", 1)),
    "intern": lambda x, w: sys.intern(w),
    "copy": lambda x, w: (copy.copy(w), copy.deepcopy([w])),
    "index": lambda x, w: ["one", "two", "three"].index(w),
    "count": lambda x, w: ("one", w).count("one"),
    "remove": lambda x, w: (lambda words: (words.remove(w), words)[1])(["one", "two", "three"]),
    "set_ops": lambda x, w: sorted({w} | {"one"}) + sorted({w} & {"one"}) + sorted(frozenset([w]) - {"two"}),
    "setattr": lambda x, w: (lambda h: (setattr(h, w, 5), vars(h))[1])(types.SimpleNamespace()),
    "ns": lambda x, w: vars(types.SimpleNamespace(**{w: 1})),
    "globals": lambda x, w: globals()[w],
    "eval": lambda x, w: eval(w),
    "import": lambda x, w: importlib.import_module({"one": "math", "two": "json", "three": "re"}[w]).__name__,
    "chainmap": lambda x, w: collections.ChainMap({}, D1)[w],
    "deque": lambda x, w: list(collections.deque([w, "a"])) + [w in collections.deque(["one"])],
    "star": lambda x, w: (lambda *a, **k: (a, k))(w, *[w], **{"k": w}),
    "kw": lambda x, w: (lambda **k: k.get(w, 9))(one=1, two=2),
    "try": lambda x, w: _try(w),
    "raise": lambda x, w: _raise(w),
    "bytes": lambda x, w: w.encode() + bytes(w, "utf8"),
    "int": lambda x, w: int(w == "one") + float(str(len(w))),
    "ord": lambda x, w: [ord(c) for c in w],
    "cmp": lambda x, w: (w < "p", w >= "one", w != "one", not w),
    "slice": lambda x, w: w[::-1],
    "mul": lambda x, w: w * 2,
    "iadd": lambda x, w: _iadd(w),
    "dictcomp": lambda x, w: {k: v for k, v in [(w, 1), ("one", 2)]},
    "setcomp": lambda x, w: sorted({k for k in (w, "one")}),
    "lru": lambda x, w: _lru(w),
    "nt": lambda x, w: NT(w, 1)._asdict(),
    "isinst": lambda x, w: (isinstance(w, str), type(w).__name__, callable(w), w.__class__.__name__),
    "zipkeys": lambda x, w: [(a, b) for a, b in zip([w, "x"], ["one", "x"]) if a == b],
    "dictin": lambda x, w: ("one" in {w: 1}, "one" in {w}, "one" in (w,), w in [w]),
    "getdict": lambda x, w: H.__dict__[w],
    "strjoin": lambda x, w: w.join("abc"),
    "unpack": lambda x, w: (lambda a, b, *c: (a, b, c))(*w),
    "moda": lambda x, w: x.to({"one": "cpu"}.get(w, "cpu")).device.type,
    "ein": lambda x, w: torch.einsum({"one": "i,i->i", "two": "i,i->"}.get(w, "i,j->ij"), x, x),
    "to": lambda x, w: x.new_zeros(2, dtype=getattr(torch, {"one": "int32"}.get(w, "float64"))),
    "mod": lambda x, w: getattr(x, {"one": "abs", "two": "neg"}.get(w, "sin"))(),
    "opcall": lambda x, w: getattr(torch, {"one": "abs", "two": "neg"}.get(w, "sin"))(x),
    "mc": lambda x, w: operator.methodcaller({"one": "abs", "two": "neg"}.get(w, "sin"))(x),
}


class Holder:
    word = front = back = kept = ""
    parts = ("", 1)


HOLDER, LIST, DICT = Holder(), ["", 1], {"w": ""}


def set_word(word):
    HOLDER.word = LIST[0] = DICT["w"] = "".join(list(word))  # at an address of its own
    HOLDER.front, HOLDER.back, HOLDER.parts = word[:1], word[1:], (HOLDER.word, 3)


def given(f, x):
    return f(x, HOLDER.word)


def across_an_end(f, x):
    word = HOLDER.word
    torchbolt.graph_break()
    return f(x, word)


def of_list(f, x):
    return f(x, LIST[0])


def of_dict(f, x):
    return f(x, DICT["w"])


def of_tuple(f, x):
    return f(x, HOLDER.parts[0])


def in_a_loop(f, x):
    for word in LIST:
        torchbolt.graph_break()
        if isinstance(word, str):
            result = f(x, word)
    return result


def unpacked(f, x):
    word, _ = LIST
    return f(x, word)


def kept(f, x):
    HOLDER.kept = HOLDER.word
    return f(x, HOLDER.kept)


def formatted(f, x):
    text = f"{HOLDER.word}"
    torchbolt.graph_break()
    return f(x, text)


def joined(f, x):
    return f(x, HOLDER.front + HOLDER.back)


def joined_in_another_way(f, x):
    return f(x, "".join([HOLDER.front, HOLDER.back]))


def interpolated(f, x):
    return f(x, "%s%s" % (HOLDER.front, HOLDER.back))


SOURCES = [given, across_an_end, of_list, of_dict, of_tuple, in_a_loop, unpacked, kept, formatted]
SOURCES += [joined, joined_in_another_way, interpolated]


def same(got, want):
    if isinstance(want, torch.Tensor):
        return got.dtype == want.dtype and got.shape == want.shape and torch.allclose(got, want)
    return type(got) is type(want) and got == want


@pytest.mark.parametrize("name", READERS)
def test_readers(name):
    f, x = READERS[name], torch.tensor([0.5, -1.0, 2.0])
    torchbolt.reset()
    for source in SOURCES:
        fast = torchbolt.compile(lambda x, source=source: (x * 2, source(f, x)), recompile_limit=32)
        for word in WORDS:
            set_word(word)
            assert same(fast(x)[1], f(x, word)), (source, word)
