"""tests/fuzz/modules.py: seed -> the source of a random module with state, how it is called, and what happens between
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

import programs
import torch

# A world is this source run once: what is in it belongs to one twin alone.
MODULE = '''
import bisect, collections, contextlib, copy, dataclasses, enum, functools, heapq, itertools, math, operator, random
from typing import NamedTuple, Optional
import torch
import torch.nn.functional as F
from torch import nn

SCALE = 1.5
TABLE = {{"a": 1, "b": 0.25}}
LOG = []

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
    "self.frozen = dataclasses.replace(self.frozen, lr=self.frozen.lr * 0.5)", "self.watched.limit = count", "self.watched.limit += 1", "self.watched = copy.copy(self.watched)", "heapq.heappush(self.items, count)",
    "self.__dict__.pop('late', None)", "cached.cache_clear()", "self.steps = iter([5, 6, 7] * 9)", "self.pending = self.walk(); next(self.pending)", "self.table[f'k{{self.step % 2}}'] = count",
    "self.history = [*self.history, {x}.detach()][-2:]", "self.items[:1] = [count, count]", "self.items = [i for i in self.items if i != count] or [1]", "self.config.factors, self.items = list(self.items), list(self.config.factors)",
    "self.config.__dict__.update(depth=count)", "setattr(Model, 'calls', self.step)", "vars(self)['scale'] = {c}", "(self.items if flag else self.config.factors).append(1)", "self.step, self.scale = self.step + 1, self.step * 0.5",
    "{x} = {x} * (n := len(self.items)) + n", "assert self.step < 1000, 'much'", "try:\n            self.table['missing']\n        except KeyError as error:\n            self.mode = str(error)",
    "try:\n            next(self.steps)\n        except StopIteration:\n            self.steps = iter(range(3))", "with contextlib.ExitStack() as stack:\n            stack.callback(self.items.append, count)\n            {x} = {x} + 1",
    "{x}.detach().mul_(2)", "if y is not None:\n            y.detach().add_(1)", "x.detach()[0] = {c}",
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
    "m(torch.cat([x, x]))", "m(x[:1])", "m(x.unsqueeze(0))", "m(x, y[:1])", "m(x, x[:1])", "m(x.clone().requires_grad_())", "m(x.detach(), None)",
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
    "m.layers[1].__class__ = nn.Sigmoid", "m.layers[0].forward = m.layers[2].forward", "m.context = m.named['p'].context = Counted()", "TABLE['z'] = 1; TABLE['a'] = TABLE.pop('a')",
)  # fmt: skip
GRADIENTS = ("torch.no_grad()", "torch.no_grad()", "torch.inference_mode()", "torch.enable_grad()")


class World:
    """One twin: the module's source run in a namespace of its own, in one precision."""

    def __init__(self, source, seed, dtype=torch.float32, wrap=lambda module: module):
        self.dtype = dtype
        # dataclasses looks its module up.
        sys.modules["random_module"] = types.ModuleType("random_module")
        self.space = vars(sys.modules["random_module"])
        with default_dtype(dtype):
            programs.execute(source, "module", self.space)
            self.space["model"] = self.space["m"] = self.space["Model"]()
        # Events go to the module itself, calls to what was made of it.
        self.call = wrap(self.space["m"])
        generator = torch.Generator().manual_seed(seed)
        self.inputs = [torch.randn(4, 8, generator=generator).to(dtype) for _ in range(2)]

    def event(self, text):
        """Runs `text`; an error in it (what it removes is not there) is part of what happens."""
        with default_dtype(self.dtype):
            try:
                exec(text, self.space)
            except Exception as error:
                return type(error)

    def result(self, text, gradients, which):
        """What the caller sees of a call: its result or error, the arguments, and everything that lasts."""
        x, y = programs.copies(self.inputs)
        random.seed(which)
        torch.manual_seed(which)
        with default_dtype(self.dtype), eval(gradients, self.space):
            try:
                result = plain(eval(text, {**self.space, "m": self.call, "x": x, "y": y}))
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
            classes = [[getattr(self.space["Model"], n) for n in ("calls", "factor")], self.space["Inner"].gain]
            grads = [p.grad for p in module.parameters()]
            return plain([result, x, y, module, lasting, classes, grads])


class default_dtype:
    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *error):
        torch.set_default_dtype(self.before)


def plain(value, seen=None):
    """Nested lists, dicts and leaves; objects as their attributes, and what comes twice as where it came first."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, (bool, int, float, str, type, torch.dtype)):
        return value.__name__ if isinstance(value, type) else value
    if id(value) in seen:
        return f"number {seen[id(value)][0]}"
    seen[id(value)] = (len(seen), value)
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        return {str(k): plain(v, seen) for k, v in value.items()} | {"": type(value).__name__}
    if isinstance(value, (list, tuple, collections.deque)):
        return [type(value).__name__, *(plain(v, seen) for v in value)]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, *sorted(value, key=str)]
    if isinstance(value, enum.Enum):
        return str(value)
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
