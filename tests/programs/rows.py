# tests/programs/rows.py
"""Tables of small programs, each with what compiling it must come to.

    ROWS = Rows()

    @ROWS(randn(3, 4))                          # called three times: MISS, HIT, HIT, in one region
    def doubles(x):
        return x * 2

    @ROWS(randn(3), regions=2, ends="builtins.print")
    def says(x): ...

    @ROWS.made(randn(2, 8))                     # makes what is called, with state of its own
    def linear():
        return torch.nn.Linear(8, 8)

    ROWS.text("F.pad(x, (1, 1))", x=randn(3))   # an expression and its arguments

    @pytest.mark.parametrize("row", ROWS, ids=str)
    def test_topic(row):
        row.check()

Every call must give eager's result: classes, numbers, sizes, strides, which tensors are one and which share memory, what
became of the arguments, or eager's error. MISS is a call during which something was recorded, HIT one during which
nothing was. `regions` counts those with operators in them, once all calls were made. A fall-back to eager fails the row
unless `falls_back` says which, and a region that ends unless `ends` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import logging
import os
import types
from unittest import mock

import numpy
import torch

import torchbolt
from torchbolt import api

MISS, HIT = "MISS", "HIT"


class Lazy:
    """An argument made anew for every call."""

    def __init__(self, make):
        self.make = make


def _values(sizes, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(sizes, generator=generator) > 0.5
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0, 10, sizes, generator=generator).to(dtype)
    return torch.randn(sizes, generator=generator, dtype=dtype)


def randn(*sizes, dtype=torch.float32, seed=0, requires_grad=False):
    """A tensor argument: normal numbers, or small integers, or bools. Other seeds are other numbers."""
    return Lazy(lambda: _values(sizes, dtype, seed).requires_grad_(requires_grad))


def positive(*sizes, seed=0):
    return Lazy(lambda: _values(sizes, torch.float32, seed).abs() + 0.1)


def negative(*sizes, seed=0):
    return Lazy(lambda: -_values(sizes, torch.float32, seed).abs() - 0.1)


def ints(*sizes, below=10, seed=0):
    return Lazy(lambda: torch.randint(0, below, sizes, generator=torch.Generator().manual_seed(seed)))


def made(value):
    """`value` with fresh arguments in the place of their descriptions."""
    if isinstance(value, Lazy):
        return value.make()
    if type(value) in (list, tuple):
        return type(value)(made(v) for v in value)
    if type(value) is dict:
        return {k: made(v) for k, v in value.items()}
    return value


def _parts(value, path="result"):
    """(path, what hangs there) below a value, itself first. Each object once."""
    seen, open_ = set(), [(path, value)]
    while open_:
        path, value = open_.pop(0)
        yield path, value
        if id(value) in seen:
            continue
        seen.add(id(value))
        open_ = [(path + step, part) for step, part in _children(value)] + open_


def _children(value):
    if isinstance(value, dict):
        return [(f"[{k!r}]", v) for k, v in value.items()]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [(f"[{i}]", v) for i, v in enumerate(value)]
    if isinstance(value, torch.nn.Module):
        return [(f".{k}", v) for k, v in vars(value).items()]
    if isinstance(value, torch.Tensor | type | types.ModuleType | types.FunctionType):
        return []
    if dataclasses.is_dataclass(value) or type(value).__module__.startswith("test_"):
        return [(f".{k}", v) for k, v in getattr(value, "__dict__", {}).items()]
    return []


def _form(t):
    strides = t.stride() if t.layout == torch.strided else None
    kind = type(t), t.dtype, tuple(t.shape), strides, t.device, t.layout
    return *kind, t.requires_grad, t.is_conj(), t.is_neg(), t.is_inference()


def _plain(t):
    t = t.detach()
    if t.layout != torch.strided:
        t = t.to_dense()
    if t.is_quantized:
        t = t.dequantize()
    return t.resolve_conj().resolve_neg().as_subclass(torch.Tensor)


def _difference(got, want, near):
    if type(got) is not type(want):
        return f"a {type(got)}, not a {type(want)}"
    if isinstance(want, torch.Tensor):
        if want.is_nested:
            pairs = zip(got.unbind(), want.unbind(), strict=True)
            return next(filter(None, (_difference(g, w, near) for g, w in pairs)), None)
        if _form(got) != _form(want):
            return f"{_form(got)}, not {_form(want)}"
        if want.is_meta:
            return None
        try:
            torch.testing.assert_close(_plain(got), _plain(want), rtol=near, atol=near, equal_nan=True)
        except AssertionError as error:
            return str(error)
        return None
    if isinstance(want, numpy.ndarray):
        return None if got.dtype == want.dtype and numpy.allclose(got, want, near, near) else f"{got}, not {want}"
    if isinstance(want, float):
        close = got == want or abs(got - want) <= near * max(1, abs(want)) or (got != got and want != want)
        return None if close else f"{got}, not {want}"
    if isinstance(want, dict | list | tuple):
        keys = list(got) == list(want) if isinstance(want, dict) else len(got) == len(want)
        return None if keys else f"{got}, not {want}"
    if isinstance(want, int | str | bytes | complex | set | frozenset | torch.dtype | torch.device | None):
        return None if got == want else f"{got!r}, not {want!r}"
    return None


def _storage(t):
    try:
        return t.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse
        return id(t)


def _relations(value):
    """Which objects are one, which tensors share memory: numbers that are equal where it is so."""
    objects, storages, out = {}, {}, []
    for path, part in _parts(value):
        if isinstance(part, torch.Tensor):
            out.append((path, objects.setdefault(id(part), path)))
            if part.numel():
                out.append((path, storages.setdefault(_storage(part), path)))
        elif isinstance(part, list | dict | set):
            out.append((path, objects.setdefault(id(part), path)))
    return out


def difference(got, want, near=1e-5):
    """What is different between two values, or None."""
    theirs = list(_parts(want))
    for (path, g), (_, w) in zip(_parts(got), theirs, strict=False):
        if found := _difference(g, w, near):
            return f"{path}: {found}"
    if len(list(_parts(got))) != len(theirs):
        return "more or fewer parts"
    if _relations(got) != _relations(want):
        return f"what is one and what shares memory: {_relations(got)}, not {_relations(want)}"
    return None


class Raised(Exception):
    """Stands for the error that a call ended with."""

    def __init__(self, error):
        self.text = f"{type(error).__name__}: {error}"


def _outcome(fn, args, kwargs, grad):
    """[result, arguments afterwards, gradients, state of the random numbers], or Raised."""
    torch.manual_seed(0)
    with torch.enable_grad() if grad else torch.no_grad():
        try:
            result = fn(*args, **kwargs)
        except torchbolt.exc.TorchboltError:
            raise
        except Exception as error:
            return Raised(error)
        gradients = []
        if grad:
            outs = [p for _, p in _parts(result) if isinstance(p, torch.Tensor) and p.requires_grad]
            if outs:
                sum(o.abs().sum() for o in outs).backward()
            places = [*args, *kwargs.values(), *(fn.parameters() if isinstance(fn, torch.nn.Module) else ())]
            gradients = [p.grad for _, p in _parts([places, result]) if isinstance(p, torch.Tensor) and p.is_leaf]
    return [result, args, kwargs, gradients, torch.get_rng_state()]


@contextlib.contextmanager
def _told():
    """What torchbolt warns of."""
    said, logger = [], logging.getLogger("torchbolt")

    def keep(record):
        said.append(record.getMessage())

    logger.addFilter(keep)
    try:
        yield said
    finally:
        logger.removeFilter(keep)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    make: object  #: makes what is called
    calls: tuple  #: arguments of the first call, of the second, ...; then from the start again
    kwargs: dict
    expect: tuple = (MISS, HIT, HIT)
    regions: int = 1
    ends: tuple = ()  #: parts of the reasons for which regions end
    falls_back: str = ""  #: part of what is said when the row runs eagerly
    replays: str = ""  #: part of why a region runs eager's operators, which is a fall-back too
    grad: bool = False
    near: float = 1e-5
    like: object = None  #: what eager runs instead (torch.cond compiles, torch.compile's way)
    like_made: object = None  #: makes that

    def __str__(self):
        return self.name

    def check(self):
        torchbolt.reset()
        # Seeded, so that both have the same parameters.
        torch.manual_seed(1)
        fn = self.make()
        torch.manual_seed(1)
        eager = self.like or (self.like_made or self.make)()
        compiled = torchbolt.compile(fn, name=self.name)
        seen = []
        strict = {"TORCHBOLT_STRICT": "0"} if self.falls_back else {}
        with contextlib.ExitStack() as around:
            around.enter_context(mock.patch.dict(os.environ, strict))
            said = around.enter_context(_told())
            for i in range(len(self.expect)):
                args, kwargs = self.calls[i % len(self.calls)], self.kwargs
                want = _outcome(eager, made(args), made(kwargs), self.grad)
                before = torchbolt.stats()
                got = _outcome(compiled, made(args), made(kwargs), self.grad)
                after = torchbolt.stats()
                self._compare(i, got, want)
                seen.append(HIT if before["recordings"] == after["recordings"] else MISS)
        if self.falls_back:
            assert any(self.falls_back in text for text in said), said
        elif not self.replays:
            assert not said and torchbolt.stats()["eager_fallbacks"] == 0, (said, torchbolt.stats())
        assert tuple(seen) == tuple(self.expect), f"{seen}: {api.compiled_of(compiled)._recompiles()}"
        reports = api.compiled_of(compiled)._regions()
        if self.falls_back and self.regions is None:
            return
        breaks = sorted({b["reason"] for r in reports for b in r["breaks"]})
        unexpected = [b for b in breaks if not any(part in b for part in self.ends)]
        missing = [part for part in self.ends if not any(part in b for b in breaks)]
        assert not unexpected and not missing, f"regions end at {breaks}"
        filled = [r for r in reports if r.get("ops")]
        assert len(filled) == self.regions, f"{len(filled)} regions: {[r['ops'] for r in filled]}, ends {breaks}"
        if not self.grad and not self.falls_back:
            why = [r["why_replayed"] for r in filled if not r["compiled"]]
            assert any(self.replays in w for w in why) if self.replays else not why, why

    def _compare(self, i, got, want):
        if isinstance(got, Raised) or isinstance(want, Raised):
            got, want = getattr(got, "text", got), getattr(want, "text", want)
            assert got == want, f"call {i}: {got}\nnot {want}"
        elif found := difference(got, want, self.near):
            raise AssertionError(f"call {i}: {found}")


class Rows(list):
    """A table; each way to add a row takes Row's fields as keywords."""

    def __call__(self, *args, **facts):
        return lambda fn: self.add(fn.__name__, lambda: fn, args, facts)

    def made(self, *args, **facts):
        return lambda make: self.add(make.__name__, make, args, facts)

    def text(self, text, name=None, more=None, **facts):
        """`text` is an expression over the names of the arguments: single letters."""
        args = {k: facts.pop(k) for k in list(facts) if len(k) == 1}
        source = f"def program({', '.join(args)}):\n    return {text}\n"
        file = f"<{name or text}>"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        space = {"torch": torch, "F": torch.nn.functional, "np": numpy, **(more or {})}
        exec(compile(source, file, "exec"), space)
        self.add(name or text, lambda: space["program"], tuple(args.values()), facts)

    def add(self, name, make, args, facts):
        """One row, from its parts."""
        facts.setdefault("calls", (args,))
        facts.setdefault("kwargs", {})
        if facts.get("falls_back") and facts.get("ends", None) is None:
            # After two recordings that could not be kept nothing is recorded any more.
            facts.setdefault("expect", (MISS, MISS, HIT))
            facts["ends"], facts["regions"] = None, None
        if isinstance(facts.get("ends"), str):
            facts["ends"] = (facts["ends"],)
        self.append(Row(name, make, **facts))
        return make
