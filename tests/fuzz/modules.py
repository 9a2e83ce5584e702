# tests/fuzz/modules.py
"""Seed -> the source of a random module with state, how it is called, and what happens between
the calls.

programs.py is about tensors in one call. This is about what lasts: attributes, buffers, containers, globals, closures
and class attributes that `forward` reads and writes and that the user changes from outside, and about arguments that
differ in kind: left out, the same tensor twice, a view of another, another size, with and without gradients.

A statement is kept only when the first calls of the module run with it, and the same in float64 up to rounding.
"""

from __future__ import annotations

import collections
import copy
import enum
import itertools
import random
import sys
import types
import weakref
import zlib

import programs
import torch

# A world is this source run once: what is in it belongs to one twin alone.
MODULE = '''
import bisect, collections, contextlib, contextvars, copy, dataclasses, enum, functools, heapq, itertools, math, operator
import random, threading, types, weakref
from typing import NamedTuple, Optional
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

SCALE = 1.5
TABLE = {{"a": 1, "b": 0.25}}
LOG = []
HANDLES = []
VARIABLE = contextvars.ContextVar("VARIABLE", default=2)

def values(*sizes):
    """Values that float32 and float64 share."""
    return torch.sin(torch.arange(math.prod(sizes)) * 1.7 + {seed}).reshape(sizes).to(torch.get_default_dtype()) * 0.5

def act(t):
    return t.tanh()

class Pair(NamedTuple):
    left: torch.Tensor
    right: object = None

@dataclasses.dataclass
class Out:
    value: torch.Tensor
    count: int = 0
    rest: list = dataclasses.field(default_factory=list)

class Config:
    def __init__(self):
        self.depth, self.name, self.factors = 2, "relu", [1, 2.0]
    @property
    def twice(self):
        return self.depth * 2
    def __getattr__(self, name):
        if name.startswith("opt_"):
            return len(name)
        raise AttributeError(name)

class Slots:
    __slots__ = ("t", "n")
    def __init__(self, t, n):
        self.t, self.n = t, n

class Mode(enum.Enum):
    LOW, HIGH = 1, 2

@dataclasses.dataclass(frozen=True)
class Frozen:
    lr: float = 0.5
    names: tuple = ("a",)

class Watched:
    """Notes what is set."""
    def __init__(self):
        self.__dict__["seen"] = []
        self.limit = 3
    def __setattr__(self, name, value):
        self.seen.append(name)
        super().__setattr__(name, value)
    def __getitem__(self, i):
        return self.limit + i
    def __len__(self):
        return len(self.seen)
    def __call__(self, t):
        return t * self.limit
    def __eq__(self, other):
        return isinstance(other, Watched) and other.limit == self.limit
    __hash__ = None

class Ring:
    """A container of the user's own."""
    def __init__(self, *items):
        self.items, self.reads = list(items), 0
    def __iter__(self):
        self.reads += 1
        yield from self.items
    def __contains__(self, item):
        return item in self.items
    def __bool__(self):
        return len(self.items) > 1
    def __setitem__(self, i, item):
        self.items[i % len(self.items)] = item
    def __delattr__(self, name):
        self.items.append(len(name))
        super().__delattr__(name)

class Bag(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]

class Stack(list):
    top = 0
    def push(self, item):
        self.append(item)
        self.top += 1
        return self

class Clamped:
    """A descriptor."""
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, owner, cls):
        return self if owner is None else owner.__dict__.get(self.name, 1)
    def __set__(self, owner, value):
        owner.__dict__[self.name] = min(value, 4)

class Halve(nn.Module):
    def forward(self, w):
        return w * 0.5

class Trained(nn.Module):
    """What a step of an optimizer, another mode and a state of its own change."""
    def __init__(self):
        super().__init__()
        self.bn, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.0)
        self.extra = nn.ParameterList([values(8), values(8) + 1])
        self.by = nn.ParameterDict({{"a": values(8)}})
        self.seq = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.emb = nn.Embedding(5, 8)
        with torch.no_grad():
            for p in [*self.seq.parameters(), *self.emb.parameters()]:
                p.copy_(values(*p.shape))
    def forward(self, t):
        return self.drop(self.seq(t)) + self.extra[0]

def in_a_thread(f, *args):
    got = []
    thread = threading.Thread(target=lambda: got.append(f(*args)))
    thread.start()
    thread.join()
    return got[0]

def inspect_keys(module):
    return [name for name, _ in module.named_children() if not name.startswith("l")]

def scaled_by(n):
    def wrap(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            inner.calls += 1
            return f(*args, **kwargs) * n
        inner.calls = 0
        return inner
    return wrap

@scaled_by(2)
def decorated(t):
    return t + decorated.calls

def gathered(t, acc=[]):
    acc.append(len(acc))
    return t + len(acc)

@functools.lru_cache(maxsize=4)
def cached(n):
    return n * 2

class Inner(nn.Module):
    gain = 1.0
    def __init__(self, k=1):
        super().__init__()
        self.weight = nn.Parameter(values(8) + k)
        self.register_buffer("seen", torch.zeros(()))
        self.bias, self.calls = None, 0
    def forward(self, t, by=1.0):
        self.calls += 1
        self.seen += 1
        t = t * self.weight * by * self.gain
        return t if self.bias is None else t + self.bias

class Counted:
    def __init__(self):
        self.entered = 0
    def __enter__(self):
        self.entered += 1
        return self
    def __exit__(self, *error):
        self.entered += 10
        return error[0] is KeyError

class Model(nn.Module):
    factor = 2
    calls = 0
    clamped = Clamped()
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.inner = Inner()
        self.layers = nn.ModuleList([Inner(2), nn.Tanh(), Inner(3)])
        self.named = nn.ModuleDict({{"p": Inner(4), "q": nn.Identity()}})
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("absent", None)
        self.step, self.scale, self.cache, self.mode = 0, 0.5, None, "fast"
        self.items, self.table, self.history = [1, 2], {{}}, []
        self.queue, self.kinds = collections.deque(maxlen=2), {{3, 1}}
        self.config, self.fn, self.context = Config(), lambda t: t + SCALE, Counted()
        self.counter, self.steps = itertools.count(1), iter(range(100))
        self.counts, self.groups = collections.Counter(), collections.defaultdict(list)
        self.ordered, self.slots = collections.OrderedDict(a=1, b=2), Slots(None, 1)
        self.level, self.frozen, self.watched = Mode.LOW, Frozen(), Watched()
        self.pending, self.rng = self.walk(), random.Random(3)
        next(self.pending)
        self.ring, self.bag, self.stack, self.space = Ring(1, 2), Bag(a=1), Stack([1]), types.SimpleNamespace(n=1, t=None)
        self.trained, self.local, self.lock = Trained(), threading.local(), threading.Lock()
        self.refs, self.keys, self.local.n = weakref.WeakValueDictionary(a=self.inner), weakref.WeakKeyDictionary(), 1
        self.noise, self.kv = torch.Generator().manual_seed(3), torch.zeros(12, 8)
        self.chain, self.hidden = collections.ChainMap({{}}, TABLE), None
        with torch.no_grad():
            for p in self.lin.parameters():
                p.copy_(values(*p.shape))
    @property
    def gain(self):
        return self.scale * 2
    def helper(self, t, *more, by=1):
        self.step += 1
        return t * self.factor * by + len(more)
    def parts(self, t):
        for i, item in enumerate(self.items):
            yield t * item + i
    def walk(self):
        total = 0
        while True:
            got = yield total
            total += self.step if got is None else got
    @functools.cached_property
    def late(self):
        return self.scale * 3
    @staticmethod
    def halved(t):
        return t * 0.5
    @classmethod
    def counted(cls, t):
        cls.calls += 1
        return t * cls.calls
    def remember(self, t):
        self.cache = t
        return self
    def attend(self, t):
        """The rows so far, as a decoder's cache has them."""
        rows = t.reshape(-1, 8)[:1]
        self.hidden = rows if self.hidden is None else torch.cat([self.hidden, rows])[-6:]
        return t + self.hidden.sum(0)
    def store(self, t):
        i = self.step % 12
        self.kv[i : i + 1] = t.detach().reshape(-1, 8)[:1]
        return t + self.kv[: i + 1].sum(0)
    def checked(self, t):
        if t.shape[0] > 6:
            raise ValueError(f"{{t.shape[0]}} rows, at step {{self.step}}")
        return t
    @contextlib.contextmanager
    def scaled(self, by):
        before, self.scale = self.scale, self.scale * by
        try:
            yield self.scale
        finally:
            self.scale = before
    def forward(self, x, y=None, *, flag=False, count=2, rest=(), **more):
{body}
        return {result}
'''

READS = (
    "self.lin({x})", "self.inner({x})", "self.inner({x}, by=self.scale)", "self.layers[0]({x})", "{x} * self.step",
    "{x} * self.scale", "{x} + self.gain", "{x} * SCALE", "{x} * TABLE['a'] + TABLE.get('c', {c})", "{x} + len(LOG)",
    "{x} * self.factor + Model.calls", "self.fn({x})", "act({x})", "{x} + self.mean", "{x} * self.config.depth",
    "{x} * self.config.twice + self.config.opt_lr", "{x} if flag else {x} * 2", "{x} * count", "{x} + len(rest)",
    "{x} * sum(self.items)", "sum(self.parts({x}))", "self.helper({x}, 1, by=count)", "{x} + (1 if self.training else 2)",
    "{x} * getattr(self, 'later', {c})", "{x} * (2 if hasattr(self, 'later') else 3)", "{x} + (0 if self.cache is None else 1)",
    "{x} if self.cache is None else {x} + self.cache.sum()", "{x} * len(self.history)", "{x} + sum(h.sum() for h in self.history)",
    "{x} * (3 if 'k' in self.table else 4)", "sum(self.table.values(), {x})", "{x} + len(self.queue) + max(self.kinds)",
    "functools.reduce(lambda t, layer: layer(t), self.layers, {x})", "nn.functional.linear({x}, self.lin.weight.t())",
    "{x} * math.prod(self.config.factors)", "{x} * (1.5 if self.mode == 'fast' else 0.5)", "{x} + self.inner.weight",
    "{x} + sum(p.sum() for p in self.parameters())", "{x} * len(list(self.buffers())) + self.inner.seen",
    "{x} * sum(m.calls for m in self.modules() if isinstance(m, Inner))", "{x} * more.get('alpha', 2)", "{x} + sum(more.values())",
    "{x} * (2 if torch.is_grad_enabled() else 3)", "{x} + (1 if {x}.requires_grad else 0)", "{x} + (2 if x is y else 1)",
    "{x} * self.context.entered", "self.named['p']({x})", "{x} + len([k for k in self.__dict__ if k.startswith('l')])",
    "{x} + (1 if {y} is {z} else 2)", "{x} * x.shape[0]", "{x} * operator.attrgetter('config.depth')(self)",
    "{x} + self.lin.weight.shape[0] * (self.lin.weight.grad is None)", "{x} + {x}.new_zeros(count).sum()",
    "copy.copy(self.config).depth * {x}", "{x} * next(self.counter)", "{x} + next(self.steps)", "{x} + next(self.pending)", "{x} + self.pending.send(2)",
    "{x} * self.counts['k'] + len(self.counts)", "{x} * (2 if self.level is Mode.LOW else 3)", "{x} * self.frozen.lr", "{x} + len(self.frozen.names)", "self.watched({x})",
    "{x} * self.watched[1] + len(self.watched)", "gathered({x})", "{x} * cached(count)", "{x} * cached(self.step % 3)", "{x} * self.late", "self.halved({x})", "self.counted({x})", "{x} + self.rng.random()",
    "{x} * list(self.ordered.values())[0]", "{x} * len(self.groups) + len(self.groups.get(0, ()))", "{x} * self.slots.n", "{x} + (0 if self.slots.t is None else self.slots.t.sum())",
    "{x} * (2 if self.watched == Watched() else 3)", "{x} * self.counts.most_common(1)[0][1] if self.counts else {x}", "{x} + bisect.bisect(sorted(self.items), count)",
    "{x} * sum(i for i, _ in zip(self.items, itertools.count()))", "{x} * len(set(self.modules()))", "{x} * len({{id(p) for p in self.parameters()}})", "{x} * (2 if self.layers[0] is self.layers[2] else 3)",
    "{x} * (2 if self.layers[0] in list(self.layers)[1:] else 3)", "{x} * len(dict(self.named_parameters()))", "{x} + sum(self.state_dict()[k].sum() for k in ('mean', 'inner.seen'))",
    "{x} * sum(self.ring) + self.ring.reads", "{x} * (2 if count in self.ring else 3)", "{x} * (2 if self.ring else 3)", "{x} * self.bag['a'] + self.bag[count]",
    "{x} + sum(self.stack) * self.stack.top", "{x} * self.space.n", "{x} * vars(self.space)['n']", "self.trained({x})", "self.trained.bn({x}.reshape(-1, 8))", "{x} + sum(self.trained.extra)",
    "{x} * self.trained.by['a']", "self.trained.seq[:2]({x})", "self.trained.emb(torch.arange(count))", "{x} * self.local.n", "{x} * self.refs['a'].calls + len(self.refs)", "{x} * self.keys.get(self.inner, 2)",
    "{x} + torch.randint(5, (8,), generator=self.noise)", "{x} + self.kv[:count].sum(0)", "self.attend({x})", "self.store({x})", "self.checked({x})", "{x} * self.chain['a'] + len(self.chain)",
    "{x} + (0 if self.hidden is None else self.hidden.shape[0])", "{x} * VARIABLE.get()", "decorated({x})", "{x} * self.clamped", "{x} * self.table.get(x.shape, 2)", "{x} * self.table.get(id(self.inner), 2)",
    "{x} * {x}.size(-1) ** -0.5 + int(x.shape[0] / 2)", "{x} + (0 if self.lin.weight.grad is None else self.lin.weight.grad.sum())", "{x} * getattr(x, 'tag', 2)", "{x} * getattr(self.lin.weight, 'tag', 2)",
    "{x} * (2 if x.grad_fn is None else 3)", "{x} * (2 if x.is_contiguous() else 3)", "{x} * (2 if isinstance(y, torch.Tensor) and x.shape == y.shape else 3)", "torch.func.functional_call(self.lin, {{'weight': self.lin.weight * 2}}, {x})",
    "{x} + len(inspect_keys(self))", "torch.vmap(self.inner)({x})", "{x} + self.inner.weight._version", "{x} * (2 if self.lin.weight is self.trained.seq[0].weight else 3)", "{x} * len(self._forward_hooks) + len(self.lin._forward_hooks)",
    "{x} * (1 if torch.is_autocast_enabled('cpu') else 2)", "{x} * type(self).__name__.count('o')", "{x} + len(repr(self.ring.items))", "{x} * (3 if callable(self.fn) and self.fn is not act else 2)", "{x} + hash(self.level.name) % 1",
    "{x} * self.__class__.factor", "{x} * len(Model.__mro__)", "{x} + next(iter(self.kinds))", "{x} + sum(i * v for i, v in enumerate(self.items))", "{x} * (2 if torch.equal(self.mean, torch.zeros(8)) else 3)",
    "{x} * sum(map(float, self.items))", "{x} * max(self.items, default=1) + min([2, *self.items])", "{x} * sum(a + i for i, a in enumerate(reversed(self.items)))", "{x} + sum(dict(zip('abc', self.items)).values())",
    "{x} * sum(list(self.items)[1:] + [1])", "{x} * sum(copy.deepcopy(self.items))", "{x} * sum(TABLE.values())", "{x} + sum((TABLE | {{'z': 2}}).values())", "sum(a * t for a, t in zip(self.items, self.parts({x})))", "{x} * random.randint(1, 3)",
    "{x} + sum(map(operator.mul, self.items, self.config.factors))", "{x} * sum(a for a in itertools.chain(self.items, self.config.factors))", "{x} + sum(v * 0.5 for v in {{**TABLE}}.values())",
    "{x} * len(self.table) + len(TABLE)", "{x} + ''.join(self.table).count('k')", "{x} * list(TABLE)[-1].count('a')", "{x} * (self.items[-1] if self.items else 3)", "{x} * (self.absent if self.absent is not None else 1)",
)  # fmt: skip
WRITES = (
    "self.step += 1", "self.scale *= 0.5", "self.scale = {c}", "self.cache = {x}", "self.cache = {x}.detach()", "self.cache = None",
    "self.mean.mul_(0.9)", "self.mean.add_({x}.detach().reshape(-1)[:8].mean())", "self.mean = self.mean + 1",
    "self.mean[0] = self.step", "self.history.append({x}.detach())", "self.history.append(len(self.history) * {x}.detach().sum())",
    "if len(self.history) > 1:\n            self.history.pop(0)", "self.history[:] = self.history[-2:]", "self.table['k'] = {x}.detach()",
    "self.table['n'] = self.table.get('n', 0) + 1", "self.table.pop('k', None)", "self.table.setdefault('s', {x}.detach()).add_(1)",
    "self.items.append(self.step % 3)", "self.items[-1] = count", "self.items.sort()", "self.queue.append({x}.detach())",
    "self.queue.appendleft(self.step)", "self.kinds.add(count)", "self.kinds.discard(3)", "self.config.depth += 1",
    "self.config.factors[0] = {c}", "Model.calls += 1", "type(self).factor = {c}", "LOG.append(count)", "LOG.append({x}.detach())",
    "TABLE['c'] = count", "TABLE.update(a=self.step)", "self.later = {c}", "self.later = 1 + getattr(self, 'later', 0)",
    "if hasattr(self, 'later'):\n            del self.later", "self.context.entered = 0", "self.remember({x}).step += 2",
    "with self.context:\n            {x} = {x} * 2\n            raise KeyError(1)", "with self.context as seen:\n            {x} = {x} + seen.entered",
    "global SCALE\n        SCALE = SCALE * 0.5", "global SCALE\n        SCALE = {c}", "self.inner.bias = {x}.detach().reshape(-1)[:8]",
    "self.fn = lambda t, k=self.step: t * k", "self.fn = self.helper", "self.mode = 'slow' if self.mode == 'fast' else 'fast'",
    "rest = [*rest, {x}]\n        rest[0] = {x} * 2", "more['alpha'] = {x}", "self.config = Config()", "self.config.extra = {x}.detach()",
    "self.__dict__.setdefault('later', 5)", "setattr(self.inner, 'gain', {c})", "self.mean, self.cache = {x}.detach().mean() + torch.zeros(8), self.mean",
    "self.cache = self.table\n        self.cache = self.cache.get('k')", "self.register_buffer('fresh', {x}.detach().sum(), persistent=False)",
    "try:\n            self.step += 1\n            raise ValueError(self.step)\n        except ValueError as error:\n            {x} = {x} * error.args[0]\n        finally:\n            self.step += 1",
    "for layer in self.layers[:2]:\n            {x} = layer({x})", "for key, value in list(self.table.items()):\n            {x} = {x} + value",
    "for h in self.history:\n            h.mul_({c})", "if self.step > 1:\n            {x} = {x} + 1\n            self.step = 0",
    "if self.step % 2:\n            self.cache = {x}.detach() + 1", "while len(self.items) > 2:\n            {x} = {x} + self.items.pop()",
    "if {x}.sum() > 0.37:\n            self.step += 1\n            self.history.append({x}.detach())", "self.scale = {x}.detach().mean().item() * 0.5",
    "if self.mean.sum() > 0.37:\n            self.mean.zero_()", "self.items[0] = int({x}.detach().abs().sum().item() * 0.7071) % 3",
    "self.mean.add_({x}.sum())", "self.history.append({x})", "self.cache = {x}[0]", "self.table['k'] = {x}.sum()", "self.inner.bias = {x}.mean(0)",
    "TABLE.clear()\n        TABLE['a'] = count", "self.table = dict(self.table)", "self.table.update(n=count, m={x}.detach())", "self.table.update({{'k': {x}.detach()}})",
    "self.table['k'] = self.table.pop('k', 0)", "self.table['n'] = 1\n        del self.table['n']", "self.items.extend([count, 1])", "self.items.remove(self.items[0])",
    "self.items = self.items[:2]", "del self.items[2:]", "self.kinds = self.kinds | {{count}}", "self.kinds.clear()\n        self.kinds.add(1)", "self.queue.extend([count, {x}.detach()])",
    "self.history += [count]", "self.layers[0].calls, self.layers[2].calls = 0, 5", "self.layers[0].bias = self.layers[2].bias", "self.named['p'].gain = self.step",
    "seen = set()\n        {x} = sum([layer({x}) for layer in self.layers if id(layer) not in seen and not seen.add(id(layer))], {x})",
    "shared = {{layer: i for i, layer in enumerate(self.layers)}}\n        {x} = {x} * len(shared)", "def bump():\n            self.step += 1\n            return self.step\n        {x} = {x} * bump() + bump()",
    "self.counts.update(k=1)", "self.counts['k'] += count", "self.counts.update([count, count])", "self.groups[self.step % 2].append(count)", "self.groups[count]", "self.ordered['c'] = self.step",
    "self.ordered.move_to_end('a')", "self.ordered['a'] = self.ordered.pop('a', 0) + 1", "self.slots.n += 1", "self.slots.t = {x}.detach()", "self.level = Mode.HIGH if self.level is Mode.LOW else Mode.LOW",
    "for i, a in enumerate(self.items):\n            {x} = {x} + a\n            self.items[i] = a * 0.5", "for a in self.items:\n            if len(self.items) < 5:\n                self.items.append(a + 1)\n            {x} = {x} * a", "TABLE.update(zip('ab', self.items))",
    "self.items = list(map(lambda a: a * 0.5, self.items))", "self.config.factors[:] = [a / (abs(sum(self.config.factors)) + 1) for a in self.config.factors]", "for name, a in TABLE.items():\n            TABLE[name] = a * 0.5", "self.items[:] = map(abs, self.items)",
    "self.items.append(sum(self.items) / (len(self.items) + 1))\n        self.items.pop(0)",
    "self.frozen = dataclasses.replace(self.frozen, lr=self.frozen.lr * 0.5)", "self.watched.limit = count", "self.watched.limit += 1", "self.watched = copy.copy(self.watched)", "heapq.heappush(self.items, count)",
    "self.__dict__.pop('late', None)", "cached.cache_clear()", "self.steps = iter([5, 6, 7] * 9)", "self.pending = self.walk(); next(self.pending)", "self.table[f'k{{self.step % 2}}'] = count",
    "self.history = [*self.history, {x}.detach()][-2:]", "self.items[:1] = [count, count]", "self.items = [i for i in self.items if i != count] or [1]", "self.config.factors, self.items = list(self.items), list(self.config.factors)",
    "self.config.__dict__.update(depth=count)", "setattr(Model, 'calls', self.step)", "vars(self)['scale'] = {c}", "(self.items if flag else self.config.factors).append(1)", "self.step, self.scale = self.step + 1, self.step * 0.5",
    "{x} = {x} * (n := len(self.items)) + n", "self.step += 1\n        self.mean.mul_(torch.linalg.cholesky((self.mean.detach().sum() + 0.5).reshape(1, 1)).sign().sum())\n        self.items.append(count)",
    "try:\n            self.mean.add_(1)\n            self.mean.mul_(torch.linalg.cholesky((3.5 - self.mean.detach().mean()).reshape(1, 1)).sign().sum())\n        except RuntimeError:\n            self.step += 1\n        finally:\n            self.items.append(count)",
    "with self.context:\n            self.mean.mul_(torch.linalg.inv((self.mean.detach().sum() < 40).to(self.mean.dtype).reshape(1, 1)).sum())\n            self.step += 1",
    "try:\n            self.mean.add_(self.trained.emb(self.mean.detach()[:1].long().abs()).detach().sum())\n            self.step += 1\n        except IndexError as error:\n            self.mode = type(error).__name__",
    "assert self.step < 1000, 'much'", "try:\n            self.table['missing']\n        except KeyError as error:\n            self.mode = str(error)",
    "try:\n            next(self.steps)\n        except StopIteration:\n            self.steps = iter(range(3))", "with contextlib.ExitStack() as stack:\n            stack.callback(self.items.append, count)\n            {x} = {x} + 1",
    "{x}.detach().mul_(2)", "if y is not None:\n            y.detach().add_(1)", "x.detach()[0] = {c}",
    "self.ring[count] = self.step", "self.ring.items = [count, 1]", "self.ring.fresh = 1\n        del self.ring.fresh", "self.bag[self.step % 3] += 1", "self.bag.clear()", "self.bag['a'] = {x}.detach().sum()", "self.stack.push(count)",
    "self.stack.push(1).pop(0)", "self.stack.top = count", "self.space.n += 1", "self.space = types.SimpleNamespace(**vars(self.space), **{{f'k{{self.step}}': 1}})", "self.space.__dict__.update(n=count)", "self.local.n = count", "self.keys[self.inner] = count",
    "self.refs['b'] = self.layers[0]", "self.chain['c'] = self.step", "self.chain = self.chain.new_child({{'a': count}})", "token = VARIABLE.set(count)\n        {x} = {x} * VARIABLE.get()\n        VARIABLE.reset(token)", "VARIABLE.set(self.step)",
    "self.clamped = count", "self.clamped += 1", "self.table[x.shape] = self.step", "self.table[id(self.inner)] = count", "x.tag = count", "self.lin.weight.tag = self.step", "with self.lock:\n            self.step += 1",
    "with self.scaled(2) as by:\n            {x} = {x} * by + self.scale", "with self.scaled(3):\n            {x} = self.checked({x}) * self.scale", "if self.step > 4:\n            raise RuntimeError(f'late at {{self.step}}')",
    "self.step += 1\n        {x} = self.checked({x})", "try:\n            {x} = self.checked({x}) + 1\n        except ValueError as error:\n            self.mode = str(error)", "try:\n            self.history.append({x}.detach())\n            {x} = {x} @ {y}\n        except RuntimeError:\n            self.step += 1",
    "self.trained.bn.momentum = 0.5", "self.trained.extra[1] = self.trained.extra[0]", "self.trained.extra.append(nn.Parameter({x}.detach().reshape(-1)[:8]))", "self.hidden = None", "self.kv = torch.roll(self.kv, 1, 0)", "self.kv.zero_()", "self.kv = self.kv[1:]\n        self.kv = F.pad(self.kv, (0, 0, 0, 1))",
    "HANDLES.append(self.lin.register_forward_hook(lambda mod, args, out: out + 1))", "if HANDLES:\n            HANDLES.pop().remove()", "self.lin.weight.grad = None", "decorated.calls = 0", "decorated.__wrapped__.seen = count", "self.noise.manual_seed(count)",
    "self.requires_grad_(flag)", "self.train(flag)", "self.inner.train(not self.inner.training)", "self.apply(lambda mod: setattr(mod, 'calls', 0) if isinstance(mod, Inner) else None)", "self.inner.seen.copy_({x}.detach().mean())", "self.add_module('extra', Inner(self.step % 2))\n        {x} = self.extra({x})",
    "self.layers.append(nn.Tanh())\n        del self.layers[3:]", "self.named['r'] = nn.ReLU()\n        {x} = self.named['r']({x})", "self.named.pop('q') if 'q' in self.named else None", "self.inner.gain, Inner.gain = Inner.gain, self.inner.gain", "self.zero_grad()",
    "torch.manual_seed(count)\n        {x} = {x} + torch.rand(())", "self.config = copy.deepcopy(self.config)", "self.fn = functools.partial(act)", "self.fn = decorated", "self.context = contextlib.closing(self.parts({x}))", "self.late = count", "async def soon():\n            self.step += 1\n            return {x} * 2\n        coroutine = soon()\n        try:\n            coroutine.send(None)\n        except StopIteration as stop:\n            {x} = stop.value",
    "class Local:\n            n = self.step\n            def __call__(self, t):\n                return t * self.n\n        self.fn = Local()", "class Sub(Inner):\n            def forward(self, t, by=2):\n                return super().forward(t, by) + self.calls\n        {x} = Sub(self.step % 2)({x})", "self.cache = {x}\n        self.cache.add_(1)", "self.cache, {x} = {x}, {x} + (0 if self.cache is None or self.cache.shape != {x}.shape else self.cache.detach())",
    "match self.step % 3, y:\n            case 0, None:\n                self.step += 1\n            case int(n), torch.Tensor(shape=[a, b]):\n                {x} = {x} * (n + b)\n            case _:\n                self.items.append(1)", "self.table.setdefault('k', 1)\n        del self.table['k']", "self.table |= {{'k': count}}", "self.items *= 2\n        del self.items[2:]", "self.items[::2] = [count] * len(self.items[::2])", "{x}.tag = count\n        {x} = {x} * {x}.tag",
    "self.history.insert(0, {x}.detach().sum(0))", "self.history.sort(key=lambda t: t.numel() if isinstance(t, torch.Tensor) else 0)", "for i, m in enumerate(self.modules()):\n            if isinstance(m, Inner):\n                m.calls += i", "for p in self.inner.parameters():\n            p.grad = None", "for name, buffer in self.named_buffers():\n            if buffer.dim() == 1:\n                buffer.add_(0.5)",
    "self.lin.weight.data.mul_(0.9)", "with torch.no_grad():\n            self.inner.weight.add_(0.1)", "self.lin.bias.requires_grad_(flag)",
)  # fmt: skip
MAKES = (
    "{n} = Slots({x}, count)\n        {n} = {n}.t * {n}.n", "{n} = Pair({x}, self.items)\n        {n} = {n}.left * len({n}.right)",
    "out = Out({x}, self.step)\n        out.rest.append(out.value)\n        {n} = out.rest[0] + out.count",
    "memo = functools.partial(self.helper, {x}, by=2)\n        {n} = memo() + memo(1)",
    "{n} = [layer({x}) for layer in self.layers if isinstance(layer, Inner)][-1]",
    "{n} = dict(zip('ab', itertools.accumulate([{x}, {y}])))['b']", "{n} = next(self.parts({x}), None)",
    "steps = iter([{x}, {y}])\n        {n} = next(steps) * len(list(steps))",
    "held = {{'x': {x}, **more}}\n        {n} = held['x'] * len(held)", "{n} = copy.copy(self.items)\n        {n}.append(1)\n        {n} = {x} * sum({n})",
    "box = types_box = [{x}]\n        box.append(self.step)\n        {n} = types_box[0] * types_box[1]",
    "{n} = {x}.detach().clone()\n        {n}.add_(self.step)", "{n} = torch.utils.checkpoint.checkpoint(self.layers[1], {x}, use_reentrant=False)",
    "{n} = self.lin.forward({x})", "{n} = super().__getattr__('inner')({x})", "{n} = sorted([({c}, {x}), (self.step, {x} * 2)], key=lambda p: p[0])[0][1]",
    "with torch.no_grad():\n            {n} = self.inner({x})", "with torch.enable_grad():\n            {n} = {x} * self.inner.weight",
    "with contextlib.suppress(IndexError):\n            {n} = {x} * 2\n            self.items[100]", "{n} = {x} + float({y}.detach().sum() > 0.37)",
    "print(end='')\n        {n} = {x} * 2", "{n} = (lambda *a, **k: a[0] * len(k))({x}, **more, z=1)",
)  # fmt: skip
RETURNS = (
    "{x}", "({x}, {y})", "Out({x}, self.step, [{y}, self.items])", "Pair({x}, self.cache)", "{{'x': {x}, 'cache': self.cache, 's': self.step}}",
    "[{x}, self.history]", "({x}, self.table)", "({x}, x)", "({x}, self.mean)", "({x}, lambda t: t * {y} + count)", "({x}, self.parts({y}))",
    "({x}, Slots({y}, self.scale))", "({x}, rest)", "({x}, more)", "({x}, self.lin.weight)", "({x}, self.queue, self.kinds)",
    "({x}, self.remember({y}).cache is {y})", "({x}, [self.config] * 2)", "{x}.detach()", "None", "({x}, self.inner.seen, self.inner.calls)",
)  # fmt: skip
CALLS = (
    "m(x)", "m(x)", "m(x)", "m(x)", "m(x, y)", "m(x, y)", "m(x, x)", "m(x, x[:])", "m(x, x.flip(0))", "m(x, y=y)", "m(x, flag=True)", "m(x, count=3)",
    "m(x, count=5)", "m(x, rest=[y])", "m(x, rest=(y, y))", "m(x, alpha=0.5)", "m(x, alpha=3, beta=1)", "m(y, x)", "m(x[1:])", "m(x.t().contiguous().t())",
    "torch.func.functional_call(m, {'lin.weight': values(8, 8)}, (x,))", "in_a_thread(m, x)", "m.forward(x, y)", "m.helper(x, y)", "m.inner(x)", "m.eval()(x)", "copy.deepcopy(m.inner)(x)", "contextvars.copy_context().run(m, x)", "[m(t) for t in (x, y)]",
    "m(nn.Parameter(x))", "m(x.requires_grad_())", "m(x.double())", "m(x[0])", "m()", "m(x, y, 3)", "m(x, wrong=y, alpha=2)", "m(x, rest=iter([y]))", "m(x, rest={'a': y})", "m(x, count=True)", "m(x, count=2.5)", "m(x, flag=0)", "m(y=y, x=x)", "m(*[x, y])", "m(x[:0])", "m(torch.cat([x, x]))", "m(x[:1])", "m(x.unsqueeze(0))", "m(x, y[:1])", "m(x, x[:1])", "m(x.clone().requires_grad_())", "m(x.detach(), None)",
)  # fmt: skip
BETWEEN = (
    "pass", "pass", "pass", "pass", "m.train()", "m.eval()", "m.scale = 2.5", "m.scale = 3", "m.step = 10", "m.items.append(3)", "m.items = (1, 2)",
    "m.items.insert(0, 0.5)", "m.table.clear()", "m.table['k'] = values(8)", "m.table['q'] = 2", "m.history.clear()", "m.history.append(values(8))",
    "m.cache = values(8)", "m.cache = None", "m.lin.weight.data.mul_(0.5)", "m.lin.weight = nn.Parameter(values(8, 8))", "m.lin.bias = None",
    "m.layers.append(Inner(5))", "m.layers[1] = nn.Sigmoid()", "m.lin = nn.Linear(8, 8, bias=False); m.lin.weight.data.copy_(values(8, 8))",
    "SCALE = 3.0", "TABLE['a'] = 4", "TABLE.pop('b', None)", "LOG.clear()", "LOG.append(1)", "Model.calls = 5", "Model.factor = 7", "m.factor = 1",
    "m.fn = lambda t: t * 3", "m.fn = torch.sigmoid", "act = torch.relu", "m.mean = torch.ones(8)", "m.mean.add_(1)", "m.mean.zero_()",
    "Model.helper = lambda self, t, *more, by=1: t * 5 + by", "m.helper = lambda t, *more, by=1: t - by", "m.config.depth = 4", "m.config = Config()",
    "m.config.opt_lr = 1", "Config.twice = 9", "m.config.factors.append(0.5)", "m.lin.register_forward_hook(lambda mod, args, out: out * 2)",
    "m.inner.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))", "m.later = 3", "m.__dict__.pop('later', None)", "m.inner.bias = values(8)",
    "m.inner.bias = None", "m.inner.gain = 0.5", "Inner.gain = 2.0", "m.inner.weight.data = values(8)", "m.inner.seen.zero_()", "m.kinds = {2}",
    "m.kinds.add(9)", "m.queue.clear()", "m.mode = 'slow'", "m.context = contextlib.nullcontext(Counted())", "m.absent = torch.ones(())", "m.zero_grad()",
    "m.lin.weight.requires_grad_(False)", "m.requires_grad_(True)", "m.named['p'] = m.inner", "m.layers[0] = m.layers[2]", "m.table['k'] = m.mean",
    "m.cache = m.mean", "m.history.append(m.mean)", "Model.gain = property(lambda self: 1.25)", "m.register_buffer('extra', torch.ones(8))",
    "m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()})", "Model.parts = lambda self, t: [t, t * 2]", "m.half = 1",
    "m.inner.forward = lambda t, by=1.0: t * 4", "m.inner.__dict__.pop('forward', None)", "m.table = collections.OrderedDict(z=1, k=values(8))",
    "m.history = collections.deque(m.history, maxlen=3)", "torch.manual_seed(3)", "m.config.factors[0] = 3", "m.items.reverse()", "next(m.counter)", "next(m.steps)", "m.steps = iter([1, 2])", "m.counts['z'] = 4", "m.counts.clear()", "m.groups[0].append(1)", "m.ordered.move_to_end('a')", "m.ordered['q'] = 3",
    "m.slots = Slots(values(8), 2)", "m.slots.n = 5", "m.level = Mode.HIGH", "m.frozen = Frozen(0.25, ('b', 'c'))", "m.watched = Watched()", "m.watched.__dict__['limit'] = 4", "gathered.__defaults__[0].clear()", "cached.cache_clear()",
    "m.__dict__.pop('late', None)", "m.rng.seed(1)", "m.pending = m.walk(); next(m.pending)", "next(m.pending)", "Watched.__call__ = lambda self, t: t + self.limit", "Model.halved = staticmethod(lambda t: t * 4)",
    "gathered.__defaults__ = ([1, 2],)", "m.counts = collections.Counter(k=3)", "m.config.factors.sort(key=lambda v: -v)", "m.items.clear()", "m.table = TABLE", "TABLE['k'] = 3", "m.table['n'] = 7", "m.history = m.items = [1, 2]", "m.layers[2].calls = 4", "m.layers[0].bias = m.layers[2].bias = values(8)",
    "m.layers[0].weight = m.layers[2].weight", "m.lin.bias = m.inner.weight", "m.inner.seen = m.layers[0].seen", "m.config.factors = m.items", "m.train(); m.layers[0].eval()", "m.queue.append(3)",
    "HANDLES.append(m.lin.register_forward_hook(lambda mod, args, out: out * 2))", "HANDLES.append(m.inner.register_forward_pre_hook(lambda mod, args, kwargs: (args, {**kwargs, 'by': 3}), with_kwargs=True))", "HANDLES and HANDLES.pop().remove()", "HANDLES and HANDLES.pop(0).remove()",
    "HANDLES.append(m.register_forward_hook(lambda mod, args, out: LOG.append(mod.step)))", "HANDLES.append(m.inner.register_full_backward_hook(lambda mod, got, given: LOG.append(len(got))))", "HANDLES.append(m.lin.weight.register_hook(lambda g: g * 2) if m.lin.weight.requires_grad else None)", "HANDLES.append(torch.nn.modules.module.register_module_forward_hook(lambda mod, args, out: out + 1 if type(mod).__name__ == 'Inner' else None))",
    "def bad(mod, args, out):\n    if mod.calls % 2: raise KeyError(mod.calls)\nHANDLES.append(m.inner.register_forward_hook(bad))", "HANDLES.append(m.inner.register_forward_hook(lambda mod, args, out: setattr(mod, 'calls', 0), always_call=True))",
    "parametrize.register_parametrization(m.lin, 'weight', Halve())", "parametrize.remove_parametrizations(m.lin, 'weight')", "parametrizations.weight_norm(m.lin)", "parametrizations.orthogonal(m.trained.seq[0]) and None", "m.lin.parametrizations.weight.original.data.mul_(2)", "m.lin.parametrizations.weight.append(Halve())",
    "torch.optim.SGD(m.parameters(), 0.1, momentum=0.9).step()", "torch.optim.SGD(m.parameters(), 0.1).step()", "OPT = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9); OPT.step()", "OPT.step()", "OPT.zero_grad(set_to_none=False)", "nn.utils.clip_grad_norm_([p for p in m.parameters() if p.grad is not None], 1.0)", "OPT.param_groups[0]['lr'] = 0.1",
    "m.ring = Ring(3)", "m.ring.items.append(2)", "Ring.__bool__ = lambda self: False", "Ring.__iter__ = lambda self: iter([1.0])", "m.bag = Bag(z=1)", "m.bag['a'] = 3", "m.stack.top = 2", "m.stack = Stack([1, 2]).push(3)", "Stack.top = 5", "m.space.n = 3", "m.space = types.SimpleNamespace(n=2.5, t=None)",
    "m.trained.train(); m.trained.bn.eval()", "m.trained.bn.reset_running_stats()", "m.trained.seq[1] = nn.Tanh()", "m.trained.seq.append(nn.Tanh())", "m.trained.seq = nn.Sequential(nn.Tanh())", "m.trained.extra.append(nn.Parameter(values(8)))", "m.trained.extra = nn.ParameterList([values(8)])", "m.trained.by['a'] = nn.Parameter(values(8) * 2)", "m.trained.emb.weight.data.fill_(0.5)",
    "m.local.n = 4", "m.local = threading.local(); m.local.n = 2", "m.refs['a'] = m.layers[0]", "m.keys[m.inner] = 5", "m.keys.clear()", "m.noise.manual_seed(7)", "m.noise = torch.Generator().manual_seed(5)", "m.chain.maps[0]['a'] = 5", "m.chain = collections.ChainMap({'a': 2})", "m.hidden = None", "m.hidden = values(2, 8)", "m.kv = values(12, 8)", "m.kv.fill_(1)",
    "VARIABLE.set(3)", "decorated.calls = 5", "decorated = scaled_by(3)(act)", "m.clamped = 9", "Model.clamped = 3", "m.lin.weight.tag = 4", "m.lin.weight.grad = torch.ones(8, 8)", "m.trained.seq[0].weight = m.lin.weight", "m.inner = copy.deepcopy(m.inner)", "m.lin = copy.copy(m.lin)", "m.apply(lambda mod: mod.register_buffer('note', torch.ones(2)))",
    "m.layers.insert(0, Inner(6))", "m.layers.extend([nn.Tanh()])", "del m.layers[0]", "m.layers = nn.ModuleList([Inner(1)] * 3)", "m.named.update({'p': nn.Tanh()})", "del m.named['q']", "m.inner.__class__ = type('Deep', (Inner,), {'gain': 3.0})", "Model.forward, Model.helper = Model.forward, lambda self, t, *more, by=1: t - by",
    "Inner.forward = lambda self, t, by=1.0: t * by - self.calls", "Model.__getattr__ = lambda self, name: 5 if name == 'later' else nn.Module.__getattr__(self, name)", "m.lin.weight.data = values(8, 8).t()", "m.lin.weight = nn.Parameter(m.lin.weight.detach().t())", "m.inner.weight = nn.Parameter(values(1))", "m.inner.weight = nn.Parameter(values(4, 8))",
    "m.lin.to_empty(device='cpu').load_state_dict({k: values(*v.shape) for k, v in m.lin.state_dict().items()})", "m.load_state_dict({k: values(*v.shape) if v.is_floating_point() else v for k, v in m.state_dict().items()}, assign=True)", "m.mean = None", "del m.mean; m.mean = values(8)", "m.absent = values(8)", "m.register_buffer('mean', values(1, 8))", "m.config = types.SimpleNamespace(depth=2, twice=4, opt_lr=1, factors=[1])", "Counted.__exit__ = lambda self, *error: True", "m.level = 'other'", "m.items = Stack([1, 2])", "m.table = Bag(k=1)", "m.history = ()", "m.queue = [1]", "m.kinds = frozenset({1, 2})", "SCALE = torch.ones(())", "TABLE = {'a': torch.ones(()), 'c': 2}", "LOG = ()", "act = nn.Tanh()", "act = functools.partial(torch.add, other=1)",
    "m.layers[1].__class__ = nn.Sigmoid", "m.layers[0].forward = m.layers[2].forward", "m.context = m.named['p'].context = Counted()", "TABLE['z'] = 1; TABLE['a'] = TABLE.pop('a')",
)  # fmt: skip
GRADIENTS = (
    "torch.no_grad()",
    "torch.no_grad()",
    "torch.inference_mode()",
    "torch.enable_grad()",
    "torch.enable_grad()",
)


class World:
    """One twin: the module's source run in a namespace of its own, in one precision."""

    def __init__(self, source, seed, dtype=torch.float32, wrap=lambda module: module):
        self.dtype = dtype
        # dataclasses looks its module up.
        sys.modules["random_module"] = types.ModuleType("random_module")
        self.space = vars(sys.modules["random_module"])
        with programs.default_dtype(dtype):
            programs.execute(source, "module", self.space)
            self.space["model"] = self.space["m"] = self.space["Model"]()
        # Events go to the module itself, calls to what was made of it.
        self.call = wrap(self.space["m"])
        generator = torch.Generator().manual_seed(seed)
        self.inputs = [torch.randn(4, 8, generator=generator).to(dtype) for _ in range(2)]

    def close(self):
        """Hooks for all modules would be hooks of what comes next in this process, too."""
        for handle in filter(None, self.space["HANDLES"]):
            handle.remove()

    def event(self, text):
        """Runs `text`; an error in it (what it removes is not there) is part of what happens."""
        with programs.default_dtype(self.dtype):
            try:
                exec(text, self.space)
            except Exception as error:
                return type(error)

    def result(self, text, gradients, which):
        """What the caller sees of a call: its result or error, the arguments, and everything that lasts."""
        x, y = programs.copies(self.inputs)
        random.seed(which)
        torch.manual_seed(which)
        with programs.default_dtype(self.dtype), eval(gradients, self.space):
            try:
                # A compiled function has nothing but calls.
                whole = "m." in text or "(m, {" in text
                called = self.space["m"] if whole and not isinstance(self.call, torch.nn.Module) else self.call
                result = plain(eval(text, {**self.space, "m": called, "x": x, "y": y}))
                losses = (
                    [t.sum() for t in programs.tensors_in(result) if not t.is_leaf] if torch.is_grad_enabled() else []
                )
                if losses:
                    sum(losses).backward()
            except Exception as error:
                if type(error).__module__.startswith("torchbolt"):
                    raise
                result = type(error).__name__
            module = self.space["m"]
            lasting = [self.space[n] for n in ("SCALE", "TABLE", "LOG")]
            lasting += [
                len(self.space["HANDLES"]),
                self.space["VARIABLE"].get(),
                getattr(self.space["decorated"], "calls", 0),
            ]
            classes = [[getattr(self.space["Model"], n) for n in ("calls", "factor")], self.space["Inner"].gain]
            grads = [p.grad for p in module.parameters()]
            return plain([result, x, y, module, lasting, classes, grads])


def name_of(key):
    """A dict's key; ids of the twins' objects differ."""
    return "id" if isinstance(key, int) and key > 10**6 else str(key)


def plain(value, seen=None):
    """Nested lists, dicts and leaves; objects as their attributes, and what comes twice as where it came first."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, (bool, int, float, str, type, torch.dtype)):
        return value.__name__ if isinstance(value, type) else value
    if isinstance(value, frozenset):  # a value: nothing promises that it is made anew
        return [type(value).__name__, *sorted(value, key=str)]
    if id(value) in seen:
        return f"number {seen[id(value)][0]}"
    seen[id(value)] = (len(seen), value)
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        return {name_of(k): plain(v, seen) for k, v in value.items()} | {"": type(value).__name__}
    if isinstance(value, (list, tuple, collections.deque)):
        own = [plain(vars(value), seen)] if type(value).__name__ == "Stack" else []
        return [type(value).__name__, *(plain(v, seen) for v in value), *own]
    if isinstance(value, set):
        return [type(value).__name__, *sorted(value, key=str)]
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, (weakref.WeakValueDictionary, weakref.WeakKeyDictionary)):
        return plain([list(value.keys()), list(value.values())], seen)
    if isinstance(value, torch.Generator):
        return zlib.crc32(value.get_state().numpy())
    if isinstance(value, itertools.count):
        return repr(value)
    if isinstance(value, random.Random) or type(value).__name__.endswith("iterator"):
        return [type(value).__name__, str(copy.copy(value).__reduce__()[1:])]
    if isinstance(value, types.GeneratorType) and value.__name__ != "walk":
        return ["generator", *(plain(v, seen) for v in value)]
    if isinstance(value, (types.FunctionType, types.MethodType)):
        if value.__name__ == "<lambda>" and value.__code__.co_varnames[:1] == ("t",):
            try:
                return ["function", plain(value(torch.ones(8)), seen)]
            except Exception as error:
                return ["function", type(error).__name__]
        return ["function", value.__name__]
    if hasattr(value, "__dict__"):
        own = {
            k: v
            for k, v in vars(value).items()
            if not k.startswith("_") or k in ("_parameters", "_buffers", "_modules")
        }
        return {k: plain(v, seen) for k, v in own.items()} | {"": type(value).__name__}
    if hasattr(type(value), "__slots__"):
        return [type(value).__name__, *(plain(getattr(value, s), seen) for s in type(value).__slots__)]
    return type(value).__name__


class Module(programs.Growing):
    """A module under construction, the calls of it and what happens before each."""

    def __init__(self, seed, length):
        super().__init__(f"module {seed}", ["x", "y"], [])
        self.seed = seed
        self.statements.append(self.random.choice(("y = x * 0.5 if y is None else y", "y = x if y is None else y + 1")))
        self.first_calls = [(self.random.choice(CALLS[:6]), self.random.choice(GRADIENTS)) for _ in range(3)]
        self.build(1 + length, RETURNS)
        calls = [("pass", *call) for call in self.first_calls]
        for _ in range(7):
            calls.append((self.random.choice(BETWEEN), self.random.choice(CALLS), self.random.choice(GRADIENTS)))
        self.calls = calls

    def grow(self):
        name = f"v{len(self.statements)}"
        choice = self.random.random()
        if choice < 0.3:
            text, makes = f"{name} = " + self.fill(self.random.choice(READS)), True
        elif choice < 0.65:
            text, makes = self.fill(self.random.choice(WRITES)), False
        elif choice < 0.78:
            text, makes = self.fill(self.random.choice(MAKES), name), True
        else:
            family = self.random.choice(
                (programs.UNARY, programs.BINARY, programs.VIEWS, programs.REDUCTIONS, programs.IN_PLACE)
            )
            text, makes = self.fill(self.random.choice(family)), family is not programs.IN_PLACE
            text = f"{name} = {text}" if makes else text
        if text.startswith("global") and any("SCALE" in s for s in self.statements):
            return
        self.add(text, name if makes else None)

    def runs(self, statements, result):
        source = source_of(statements, result, self.seed)
        try:
            single, double = World(source, self.seed), World(source, self.seed, torch.float64)
        except SyntaxError:
            return False
        for which, call in enumerate(self.first_calls):
            a, b = single.result(*call, which), double.result(*call, which)
            if isinstance(a[1], str) or not alike(a, b):
                return False
        return True


def source_of(statements, result, seed):
    body = "\n".join(f"        {s}" for s in statements)
    return MODULE.format(body=body, result=result, seed=seed % 100)


def leaves(value, path=""):
    """The (path, leaf) pairs of what plain() makes."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value[1:]):
            yield from leaves(item, f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]")
        yield path, value[""] if isinstance(value, dict) else value[0]
    else:
        yield path, value


def alike(single, double):
    """Whether float32 and float64 went the same way, up to rounding."""
    a, b = list(leaves(single)), list(leaves(double))
    if len(a) != len(b):
        return False
    for (_, s), (_, d) in zip(a, b, strict=True):
        if isinstance(s, torch.Tensor) != isinstance(d, torch.Tensor):
            return False
        if isinstance(s, torch.Tensor):
            if not programs.well_conditioned(s.detach(), d.detach()):
                return False
        elif isinstance(s, float) and isinstance(d, float):
            if not abs(s - d) <= 1e-4 * max(1, abs(d)):
                return False
        elif s != d:
            return False
    return True
