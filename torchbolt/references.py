# torchbolt/references.py
"""Python objects -> plain data that says which they are -> the same objects in another process.

    by value    numbers, texts, None, tuples, ranges, dtypes, devices, members of enums: what is compared by value
    by a way    modules, functions, classes, code, dicts, cells: ["way", root, step, ..., hash], from a module, the
                target or the model, by names and places that do not depend on the process
    weights     parameters and buffers, by name

With functions, code and the user's classes goes a hash of their code, so that the way leads to the same thing or to an
error that names it. What can be reached by no way is an error, too: torchbolt.saved tells the user.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import enum
import functools
import hashlib
import importlib
import sys
import types
import typing

import torch

from torchbolt import exc

_CODE = types.CodeType
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType)
_DESCRIPTORS += (types.MemberDescriptorType, types.ClassMethodDescriptorType)
# What says another thing in each process. What id() says is only compared, and asked again where it is kept (World::
# identified in src/observe/world.h).
_OF_A_PROCESS = {id(each): each.__name__ for each in (hash,)}
# Attributes that lead from an object to another one, by its type.
_PARTS: tuple[tuple[type | tuple, tuple[str, ...]], ...] = (
    (types.FunctionType, ("__code__", "__globals__", "__closure__", "__defaults__", "__kwdefaults__", "__dict__")),
    (types.MethodType, ("__func__", "__self__")),
    (types.BuiltinFunctionType, ("__self__",)),
    (types.CellType, ("cell_contents",)),
    (property, ("fget", "fset", "fdel")),
    ((staticmethod, classmethod), ("__func__",)),
    (functools.partial, ("func", "args", "keywords")),
    (functools._lru_cache_wrapper, ("__wrapped__",)),
)
_ATTRIBUTES = {name for _, names in _PARTS for name in names}
# Modules that functions of C's are found in.
_HOMES = ("builtins", "torch", "torch._C", "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special")
# Python's own types that stand under another name than theirs.
_UNNAMED_TYPES = {
    id(cls): name
    for name, cls in vars(types).items()
    if isinstance(cls, type) and cls.__module__ == "builtins" and not hasattr(builtins, cls.__name__)
}
_FARTHEST = 14
_LARGEST = 4096
# Objects that are looked at for one that its name does not lead to: near those that names lead to, a second or so; and
# everywhere, ten seconds or so.
_MOST_NEAR = 50_000
_MOST = 1_000_000


def name_of(target) -> str:
    """What a function or class is called, with its module; of an instance, its class."""
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"


# ---- what they are


@functools.lru_cache(maxsize=1 << 16)
def _hash_of_code(code: _CODE) -> str:
    digest = hashlib.sha256(code.co_code)
    facts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_names)
    digest.update(repr((*facts, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_qualname)).encode())
    digest.update(getattr(code, "co_exceptiontable", b""))
    for constant in code.co_consts:
        digest.update(_constant_text(constant).encode())
    return digest.hexdigest()[:20]


def _constant_text(constant) -> str:
    if isinstance(constant, _CODE):
        return _hash_of_code(constant)
    if isinstance(constant, tuple):
        return f"({','.join(map(_constant_text, constant))})"
    if isinstance(constant, frozenset):
        return f"{{{','.join(sorted(map(_constant_text, constant)))}}}"
    return f"{type(constant).__name__} {constant!r}"


def _hash_of_class(cls: type) -> str:
    """Of its own functions, slots and bases; of a class of C's, nothing: torch and Python are the same."""
    if not cls.__flags__ & (1 << 9):  # no heap type
        return ""
    parts = [base.__qualname__ for base in cls.__mro__]
    for name, value in vars(cls).items():
        if isinstance(value, types.MemberDescriptorType):
            parts.append(f"slot {name}")
        for function in _functions_in(value):
            parts.append(f"{name} {_hash_of_code(function.__code__)}")
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:20]


def _functions_in(value) -> list[types.FunctionType]:
    if isinstance(value, property):
        return [each for each in (value.fget, value.fset, value.fdel) if isinstance(each, types.FunctionType)]
    value = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
    return [value] if isinstance(value, types.FunctionType) else []


def _hash_of(thing) -> str:
    if isinstance(thing, types.FunctionType):
        return _hash_of_code(thing.__code__)
    if isinstance(thing, _CODE):
        return _hash_of_code(thing)
    return _hash_of_class(thing) if isinstance(thing, type) else type(thing).__qualname__


# ---- steps on a way


def _take(thing, step: list):
    """Where a step leads. Raises LookupError, AttributeError or TypeError where there is nothing."""
    kind, what = step
    if kind == "in":  # a module's or class's own name
        return vars(thing)[what]
    if kind == "of":
        if what not in _ATTRIBUTES:
            raise LookupError(what)
        return getattr(thing, what)
    if kind == "own":  # an instance's attribute
        return thing.__dict__[what]
    if kind == "at":
        return thing[what]
    if kind == "names":
        return vars(thing)
    if kind == "base":
        return thing.__bases__[what]
    if kind == "class":
        return type(thing)
    if kind == "constant":
        return thing.co_consts[what]
    raise LookupError(kind)


def _is(thing, cls) -> bool:
    """Of that class itself: isinstance() asks the object, and some warn."""
    return issubclass(type(thing), cls)


def _steps_from(thing) -> list[tuple[list, object]]:
    """(step, where it leads) to everything that lies next to `thing`."""
    if _is(thing, types.ModuleType):
        return [
            (["class", 0], type(thing)),
            (["names", 0], vars(thing)),
            *((["in", k], v) for k, v in _named(vars(thing))),
        ]
    if _is(thing, type):
        bases = [(["base", i], base) for i, base in enumerate(thing.__bases__)]
        return [*((["in", k], v) for k, v in _named(vars(thing))), *bases]
    if _is(thing, _CODE):
        return [(["constant", i], c) for i, c in enumerate(thing.co_consts) if isinstance(c, _CODE)]
    for types_of, names in _PARTS:
        if _is(thing, types_of):
            return [(["of", n], getattr(thing, n)) for n in names if _has(thing, n)]
    # Of these types themselves: a class on top of dict may import what it is asked for (transformers' mappings), and
    # what stands where in a list may be another thing in another process.
    if type(thing) is tuple:
        return [(["at", i], item) for i, item in enumerate(thing[:_LARGEST])]
    if type(thing) is dict:
        return [(["at", k], v) for k, v in _named(thing)] if len(thing) <= _LARGEST else []
    own = _own_names(thing)
    return [(["class", 0], type(thing)), *((["own", k], v) for k, v in _named(own))] if own else []


def _own_names(thing) -> dict | None:
    """An instance's dict, without asking a __getattribute__ of its class."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return None
    return own if type(own) is dict else None


def _named(names) -> list[tuple[str, object]]:
    return [(k, v) for k, v in list(names.items()) if type(k) is str]


def _has(thing, name: str) -> bool:
    try:
        return getattr(thing, name) is not None
    except (AttributeError, ValueError):  # an empty cell
        return False


# ---- values

_TORCH = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
_ALONE = {"None": None, "Ellipsis": Ellipsis, "NotImplemented": NotImplemented}


@dataclasses.dataclass(frozen=True)
class Roots:
    """What both processes have, so that what can be reached from it needs no module: the target, the module or object
    that it is called on, and tensors by name."""

    target: object
    model: object = None
    weights: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)

    def begins(self) -> list[tuple[list, object]]:
        named = [([["target"]], self.target), ([["model"]], self.model)]
        return [row for row in named if row[1] is not None]


class Writer:
    """Says which objects they are."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._weights = {id(tensor): name for name, tensor in roots.weights.items()}
        self._named: list[tuple[list, object]] = []  # ways that names lead
        self._searches: list[_Search] = []
        self._by_file: dict[str, str] | None = None

    def all(self, objects: list) -> list:
        for each in objects:  # what has a name says where to look for what has none
            if self._value(each) is None:
                self._straight_noted(each)
        return [self.one(each) for each in objects]

    def one(self, thing):
        if id(thing) in _OF_A_PROCESS:
            raise exc.ArtifactError(f"{_OF_A_PROCESS[id(thing)]}() gives something else in each process")
        for name, alone in _ALONE.items():
            if thing is alone:
                return ["alone", name]
        if id(thing) in self._weights:
            return ["weight", self._weights[id(thing)]]
        value = self._value(thing)
        return value if value is not None else self._way(thing)

    def _value(self, thing):
        cls = type(thing)
        if cls in (bool, str):
            return [cls.__name__, thing]
        if cls is int:
            return ["int", str(thing)]
        if cls is float:
            return ["float", thing.hex()]
        if cls is complex:
            return ["complex", thing.real.hex(), thing.imag.hex()]
        if cls is bytes:
            return ["bytes", thing.hex()]
        if cls is range or cls is slice:
            return [cls.__name__, *(self.one(each) for each in (thing.start, thing.stop, thing.step))]
        if cls is torch.Size:
            return ["Size", *thing]
        if cls is torch.device:
            return ["device", str(thing)]
        if cls in _TORCH:
            return ["torch", str(thing).removeprefix("torch.")]
        if isinstance(thing, enum.Enum):
            return ["member", self.one(cls), thing.name]
        if cls.__module__ == "numpy" and getattr(getattr(thing, "dtype", None), "kind", "") in tuple("biufc"):
            return ["numpy", thing.dtype.str, thing.tobytes().hex()]
        if cls is frozenset:
            return ["frozenset", *(self.one(each) for each in thing)]
        if cls is tuple:
            return ["tuple", *(self.one(each) for each in thing)]
        if isinstance(thing, types.UnionType):
            return ["union", *(self.one(each) for each in thing.__args__)]
        if cls is typing.ForwardRef:
            return ["ForwardRef", thing.__forward_arg__]
        if typing.get_origin(thing) is typing.Union:
            return ["Union", *(self.one(each) for each in thing.__args__)]
        return None

    def _way(self, thing):
        way = self._straight_noted(thing) or self._searched(thing)
        if way is None:
            what = f"an object of {type(thing).__module__}.{type(thing).__qualname__}"
            named = f" ({thing.__qualname__})" if hasattr(thing, "__qualname__") else ""
            among = f" among the first {_MOST:,} objects that were looked at" if self._searches[-1].is_full() else ""
            raise exc.ArtifactError(f"what was compiled rests on {what}{named} that no name leads to{among}")
        return ["way", way, _hash_of(thing)]

    def _straight_noted(self, thing):
        way = self._straight(thing)
        if way:
            self._named.append((way, thing))
        return way

    def _straight(self, thing):
        """The way that its own name says, if it leads there."""
        for root, thing_there in self._roots.begins():
            if thing is thing_there:
                return root
        if thing is sys.modules:
            return [["module", "sys"], ["in", "modules"]]
        if isinstance(thing, types.ModuleType):
            name = getattr(thing, "__name__", "")
            return [["module", name]] if sys.modules.get(name) is thing else None
        if isinstance(thing, _CODE):
            return self._code(thing)
        if type(thing) is dict:  # the globals of a module
            module = sys.modules.get(thing.get("__name__"))
            return [["module", module.__name__], ["names", 0]] if getattr(module, "__dict__", None) is thing else None
        if isinstance(thing, _DESCRIPTORS):
            owner = self._straight(thing.__objclass__)
            return self._if_there(thing, owner and [*owner, ["in", thing.__name__]])
        if _is(thing, types.BuiltinFunctionType):  # torch's say another module or none
            homes = [n for n in _HOMES if vars(sys.modules.get(n, types)).get(thing.__name__) is thing]
            if homes:
                return [["module", homes[0]], ["in", thing.__name__]]
        if id(thing) in _UNNAMED_TYPES:
            return [["module", "types"], ["in", _UNNAMED_TYPES[id(thing)]]]
        module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
            return None
        steps = [["in", part] for part in name.split(".")]
        way = [["module", module], *steps]
        return self._if_there(thing, way) or self._if_there(thing, [*way, ["of", "__func__"]])

    def _code(self, code: _CODE):
        """Of the function that has its name in the module of its file."""
        if self._by_file is None:
            named = [(getattr(module, "__file__", None), name) for name, module in list(sys.modules.items())]
            self._by_file = {file: name for file, name in named if type(file) is str}
        module = self._by_file.get(code.co_filename)
        way = [["module", module], *(["in", part] for part in code.co_qualname.split("."))]
        for more in ((), (["of", "__func__"],), (["of", "fget"],)):
            if module and (found := self._if_there(code, [*way, *more, ["of", "__code__"]])):
                return found
        return None

    def _if_there(self, thing, way):
        try:
            return way if way and _follow(way, self._roots) is thing else None
        except (LookupError, AttributeError, TypeError):
            return None

    def _searched(self, thing):
        """A short way. Most objects lie beside others that are named: a cell in a function that a decorator made, a
        property in the class of a method. Some lie in their modules, few elsewhere."""
        for i in range(3):
            if i == len(self._searches):
                self._searches.append(self._search(i))
            if way := self._searches[i].way_to(thing):
                return way
        return None

    def _search(self, how_far: int):
        roots = self._roots.begins()
        if how_far == 2:
            modules = [([["module", n]], m) for n, m in list(sys.modules.items()) if _is(m, types.ModuleType)]
            main = sys.modules.get("__main__")
            modules.sort(key=lambda row: row[1] is main)  # another program's in another process
            return _Search([*roots, *modules], _MOST, through_modules=True)
        ways = {repr(way[:end]): way[:end] for way, _ in self._named for end in range(1, len(way) + 1)}
        named = [(way, _follow(way, self._roots)) for way in ways.values()]
        modules = [row for row in named if _is(row[1], types.ModuleType)]
        if how_far == 1:
            return _Search(modules, _MOST_NEAR)
        classes = [([*way, ["class", 0]], type(module)) for way, module in modules]
        near = (row for row in named if not _is(row[1], types.ModuleType))
        return _Search([*roots, *near, *classes], _MOST_NEAR)


class _Search:
    """From some objects to all that they lead to, the nearest first, as far as what is asked for; it goes on from there
    for the next one. `through_modules`: also into modules that are no beginning, which lead everywhere."""

    def __init__(self, begins: list[tuple[list, object]], most: int, through_modules: bool = False) -> None:
        self._next = collections.deque(begins)
        self._ways = {id(begin): way for way, begin in reversed(self._next)}
        self._held = [begin for _, begin in begins]  # so that nothing else gets their addresses
        self._most = most
        self._through_modules = through_modules

    def way_to(self, thing) -> list | None:
        while id(thing) not in self._ways and self._next and not self.is_full():
            way, at = self._next.popleft()
            for step, found in _steps_from(at):
                if id(found) in self._ways or _is(found, (str, int, float, bytes, torch.Tensor, type(None))):
                    continue
                self._ways[id(found)] = longer = [*way, step]
                self._held.append(found)
                leads_on = self._through_modules or not (_is(found, types.ModuleType) or _is_of_module(found))
                if leads_on and len(longer) <= _FARTHEST:
                    self._next.append((longer, found))
        return self._ways.get(id(thing))

    def is_full(self) -> bool:
        return len(self._ways) >= self._most


def _is_of_module(names) -> bool:
    """A module's dict, to which all of its functions lead."""
    return type(names) is dict and "__spec__" in names and "__loader__" in names


def _follow(way: list, roots: Roots):
    (kind, *name), *steps = way
    if kind == "module":
        thing = sys.modules.get(name[0]) or importlib.import_module(name[0])
    else:
        thing = {"target": roots.target, "model": roots.model}[kind]
    for step in steps:
        thing = _take(thing, step)
    return thing


class Reader:
    """Finds the objects again. A weight that is not there is None."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def all(self, told: list) -> list:
        return [self.one(each) for each in told]

    def one(self, told: list):
        kind, *parts = told
        if kind == "alone":
            return _ALONE[parts[0]]
        if kind == "weight":
            return self._roots.weights.get(parts[0])
        if kind == "str":
            return sys.intern(parts[0])
        if kind == "bool":
            return parts[0]
        if kind == "int":
            return int(parts[0])
        if kind == "float":
            return float.fromhex(parts[0])
        if kind == "complex":
            return complex(*map(float.fromhex, parts))
        if kind == "bytes":
            return bytes.fromhex(parts[0])
        if kind in ("range", "slice"):
            return {"range": range, "slice": slice}[kind](*map(self.one, parts))
        if kind == "Size":
            return torch.Size(parts)
        if kind == "device":
            return torch.device(parts[0])
        if kind == "torch":
            return getattr(torch, parts[0])
        if kind == "member":
            return self.one(parts[0])[parts[1]]
        if kind == "numpy":
            return importlib.import_module("numpy").frombuffer(bytes.fromhex(parts[1]), dtype=parts[0])[0]
        if kind == "frozenset":
            return frozenset(map(self.one, parts))
        if kind == "tuple":
            return tuple(map(self.one, parts))
        if kind == "union":
            return functools.reduce(lambda a, b: a | b, map(self.one, parts))
        if kind == "ForwardRef":
            return typing.ForwardRef(parts[0])
        if kind == "Union":
            return typing.Union[tuple(map(self.one, parts))]  # noqa: UP007  (of strings, too)
        return self._at(*parts)

    def _at(self, way: list, hashed: str):
        name = ".".join(str(step[-1]) for step in way)
        try:
            thing = _follow(way, self._roots)
        except (ImportError, LookupError, AttributeError, TypeError) as error:
            raise exc.ArtifactError(f"{name} is not there ({type(error).__name__}: {error})") from None
        if _hash_of(thing) != hashed:
            raise exc.ArtifactError(f"the code of {name} is not what it was when it was saved")
        return thing
