# tests/programs/test_state_programs.py
"""What a program leaves behind: changed arguments, containers, globals and objects; what its results are made of."""

import abc
import collections
import contextvars
import dataclasses
import typing

import pytest
import torch
from rows import HIT, MISS, Lazy, Rows, ints, randn

import torchbolt

ROWS = Rows()

# -- Arguments that are written ----------------------------------------------------------------------------------------
for text in (
    "x.add_(1)",
    "x.mul_(2).sub_(1)",
    "x.t().add_(1)",
    "x.view(-1)[1:3].zero_()",
    "x[0].copy_(x[1])",
    "x.fill_(3.0)",
    "torch.add(x, 1, out=x)",
    "x.copy_(x * 2)",
    "x.index_add_(0, torch.tensor([0]), x[1:2].clone())",
    "x.masked_fill_(x > 0, 0)",
    "x.clamp_(0, 1)",
    "x.swapdims(0, 1).mul_(2)",
    "(x.relu_(), x + 1)",
    "(x.add_(1), x.mul_(2))",
    "x.unsqueeze(0).sub_(1).squeeze(0)",
    "[t.add_(1) for t in x.unbind(0)]",
    "[t.mul_(2) for t in x.chunk(2)]",
    "torch._foreach_add_(list(x.unbind(0)), 1.0)",
    "x.detach().add_(1)",
    "x.data.mul_(2)",
    "x.exp_().log_()",
    "x.scatter_(0, torch.zeros(1, 4, dtype=torch.int64), 5.0)",
    "x.put_(torch.tensor([0]), torch.tensor([9.0]))",
    "x.cumsum_(0)",
    "x.addmm_(x * 2, x.t().clone())",
    "x.lerp_(x * 2, 0.5)",
):
    ROWS.text(text, name=f"writes: {text}", x=randn(4, 4), near=1e-4)


ROWS.text("x.diagonal().fill_(1)", x=randn(4, 4))


@ROWS(randn(4, 4))
def item_assignments(x):
    x[0] = 1
    x[1:, 0] = x[0, 1:]
    x[..., -1] += 2
    x[[0, 2]] = 0.5
    x[x > 1] = 1
    x[torch.arange(4), torch.arange(4)] = -1.0
    return x * 2


# -- Outputs and what they share ---------------------------------------------------------------------------------------
for text in (
    "x",
    "(x, x)",
    "x.view(-1)",
    "x.t()",
    "x[1:]",
    "(x[0], x[1], x)",
    "x.detach()",
    "x.expand(2, 4, 4)",
    "x.contiguous()",
    "x.to(torch.float32)",
    "x.reshape(2, 8)",
    "x.unbind(0)",
    "x.split(2)",
    "x.real",
    "x.data",
):
    ROWS.text(
        text,
        name=f"gives: {text}",
        x=randn(4, 4),
        regions=0 if text in ("x", "(x, x)", "x.contiguous()", "x.real") else 1,
    )
for text in (
    "(lambda y: (y, y.view(-1), y[0]))(x + 1)",
    "(lambda y: [y, y, {'y': y}])(x + 1)",
    "(lambda y: (y, y.clone(), y.t()))(x * 2)",
    "(x + 1, x.view(-1))",
    "[None, 1, 'a', 2.5, True, (), [], {}, x + 1]",
    "{'a': {'b': [x + 1, (x, 2)]}, 3: x * 2, (1, 2): None}",
    "(x.shape, x.dtype, x.device, x.stride(), x + 1)",
    "(torch.float32, torch.strided, slice(1, 2), range(3), x + 1)",
    "set([1, 2]), frozenset('a'), x + 1",
    "x + 1, ...",
    "1 + 2j, b'a', x + 1",
):
    ROWS.text(text, name=f"gives: {text}", x=randn(4, 4))


# -- Containers from outside -------------------------------------------------------------------------------------------
@ROWS(Lazy(lambda: {"a": torch.ones(4)}))
def dict_argument_written(d):
    d["b"] = d["a"] * 2
    d["a"] = d["b"] + 1
    d.setdefault("c", 3)
    d.update(e=d.pop("c"))
    return len(d)


@ROWS(Lazy(lambda: [torch.ones(4), torch.zeros(4)]))
def list_argument_written(items):
    items.append(items[0] + items[1])
    items[1] = items[2] * 2
    items.insert(0, None)
    items.reverse()
    del items[1]
    items.extend([1, 2])
    return items


@ROWS(Lazy(lambda: {1, 2}), randn(4))
def set_argument_written(s, x):
    s.add(3)
    s.discard(1)
    return x * len(s)


@ROWS(Lazy(lambda: collections.deque([1, 2], maxlen=3)), randn(4))
def deque_argument_written(d, x):
    d.append(3)
    d.appendleft(x * 2)
    d.rotate(1)
    return len(d)


@ROWS(Lazy(lambda: collections.OrderedDict(a=1, b=2)), randn(4))
def ordered_dict_argument_written(d, x):
    d.move_to_end("a")
    d["c"] = x + 1
    return list(d)


@ROWS(Lazy(lambda: collections.defaultdict(list)), randn(4))
def default_dict_argument_written(d, x):
    d["a"].append(x * 2)
    return len(d)


@ROWS(Lazy(lambda: ({"k": [torch.ones(4)]}, [{"t": torch.zeros(4)}])))
def nested_containers_written(args):
    table, rows = args
    table["k"].append(table["k"][0] * 2)
    rows[0]["t"] = rows[0]["t"] + 1
    rows.append(table)
    return rows


@ROWS(Lazy(lambda: [torch.ones(4)] * 2))
def one_tensor_twice(items):
    items[0].add_(1)
    return items[1] * 2, items[0] is items[1]


@ROWS(Lazy(lambda: (lambda t: [t, t[1:], t.view(2, 2)])(torch.arange(4.0))), replays="another input shares")
def arguments_that_share_memory(items):
    whole, tail, square = items
    tail.mul_(2)
    return whole + 1, square.sum()


# -- Globals, closures, objects ----------------------------------------------------------------------------------------
class Holder:
    def __init__(self):
        self.count, self.items, self.table, self.last = 0, [], {}, None


@ROWS.made(randn(4), expect=(MISS, HIT, HIT))
def list_in_a_closure():
    seen = []

    def run(x):
        seen.append(x * 2)
        return seen[-1] + 1

    return run


@ROWS.made(randn(4), expect=(MISS, MISS, HIT, HIT), regions=2)
def cell_that_is_filled():
    last = None

    def run(x):
        nonlocal last
        before, last = last, x * 2
        return x if before is None else before + 1

    return run


@ROWS.made(randn(4))
def attributes_of_an_object():
    holder = Holder()

    def run(x):
        holder.last = x * 2
        holder.table["x"] = holder.last + 1
        holder.items.append(x.shape[0])
        return holder.table["x"] * 3

    return run


@ROWS.made(randn(4))
def attribute_deleted_and_made():
    holder = Holder()

    def run(x):
        holder.temporary = x * 2
        y = holder.temporary + 1
        del holder.temporary
        setattr(holder, "name", "a")
        return y, hasattr(holder, "temporary"), holder.name

    return run


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = torch.ones(4)


@ROWS.made(randn(4))
def slots_written():
    slotted = Slotted()

    def run(x):
        slotted.a = slotted.a + x
        slotted.b = 3
        return slotted.a * slotted.b

    return run


@ROWS.made(randn(4))
def object_that_holds_itself():
    holder = Holder()
    holder.me = holder

    def run(x):
        holder.me.last = x + 1
        return holder.last * 2

    return run


@ROWS.made(randn(4), randn(4, seed=1))
def momentum_in_a_dict():
    state = {"m": torch.zeros(4)}

    def run(p, g):
        state["m"].mul_(0.9).add_(g)
        p.sub_(state["m"], alpha=0.1)
        return p

    return run


@ROWS.made(randn(2, 4), expect=(MISS, MISS, HIT, HIT, HIT, HIT), regions=2)
def queue_with_the_place_of_the_next(keys=8):
    queue, place = torch.zeros(4, keys), torch.zeros(1, dtype=torch.long)

    def run(x):
        at = int(place)
        queue[:, at : at + x.shape[0]] = x.T * (at + 1)
        place[0] = (at + x.shape[0]) % keys
        return queue.sum(0), place

    return run


# -- Objects that are made ---------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    extra: list = dataclasses.field(default_factory=list)


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: object


class Plain:
    def __init__(self, value):
        self.value = value
        self.half = value / 2
        self.me = self


class Items(list):
    name = "items"


class Table(dict):
    def __init__(self, **kw):
        super().__init__(kw)
        self.size = len(kw)


class OutputOf(collections.OrderedDict):
    """In the manner of transformers.ModelOutput."""

    def __init__(self, **kw):
        super().__init__(kw)
        for k, v in kw.items():
            object.__setattr__(self, k, v)


MADE = dict(Output=Output, Pair=Pair, Plain=Plain, Items=Items, Table=Table, OutputOf=OutputOf, collections=collections)
for text in (
    "Output(x + 1, [x])",
    "Pair(x + 1, Pair(x, None))",
    "Plain(x * 2)",
    "(lambda p: (p, p.half))(Plain(x * 2))",
    "Items([x + 1, 2])",
    "Table(a=x + 1)",
    "OutputOf(logits=x + 1, loss=x.sum())",
    "collections.deque([x + 1], 3)",
    "collections.defaultdict(list, {'a': [x + 1]})",
    "[Plain(x + i) for i in range(2)]",
    "iter([x + 1, x])",
    "zip([x + 1], [x])",
):
    ROWS.text(text, name=f"makes: {text}", x=randn(4), more=MADE)


@ROWS(randn(4))
def a_list_in_two_places(x):
    items = [x + 1]
    return items, {"again": items}, (items,)


@ROWS(randn(4))
def a_cycle(x):
    node = {"value": x + 1}
    node["me"] = node
    items = [node]
    items.append(items)
    return node["value"], len(items)


@ROWS(randn(4))
def a_closure_that_is_given_back(x):
    y = x * 2
    return (lambda k: y + k), y


@ROWS(randn(4))
def a_method_that_is_given_back(x):
    return Plain(x).__init__, x + 1


# -- Numbers and shapes that change ------------------------------------------------------------------------------------
SIZES = ((randn(2, 3),), (randn(5, 3),), (randn(7, 3),), (randn(9, 3),))


@ROWS(calls=SIZES, expect=(MISS, MISS, HIT, HIT, HIT, HIT), regions=2)
def batches_of_any_size(x):
    return (x * 2).sum(-1)


@ROWS(calls=SIZES, expect=(MISS, MISS, HIT, HIT, HIT, HIT), regions=2)
def sizes_used_in_the_program(x):
    b, n = x.shape
    return x.view(b * n) / b, x.new_zeros(b, 2), torch.arange(b) * n


@ROWS(calls=((randn(4), 2), (randn(4), 3), (randn(4), 2)), expect=(MISS, MISS, HIT), regions=2)
def integer_arguments(x, k):
    return x * k


@ROWS(calls=((randn(4), "a"), (randn(4), "b"), (randn(4), None)), expect=(MISS, MISS, MISS, HIT, HIT, HIT), regions=3)
def options(x, mode):
    return x + 1 if mode == "a" else x * 2 if mode is None else x - 1


@ROWS(
    calls=((randn(4),), (randn(4, dtype=torch.float64),), (ints(4),)),
    expect=(MISS, MISS, MISS, HIT, HIT, HIT),
    regions=3,
)
def types_of_numbers(x):
    return x * 2 + 1


@ROWS(calls=((randn(4),), (randn(4, 4),), (randn(2, 2, 2),)), expect=(MISS, MISS, MISS, HIT, HIT, HIT), regions=3)
def ranks(x):
    return x.sum(-1) if x.dim() > 1 else x * 2


@ROWS(calls=((randn(3, 4),), (Lazy(lambda: randn(4, 3).make().t()),)), expect=(MISS, MISS, HIT, HIT), regions=2)
def strides(x):
    return x * 2


@ROWS(calls=(([randn(4)],), ([randn(4), randn(4)],)), expect=(MISS, MISS, HIT, HIT), regions=2)
def lists_of_other_lengths(xs):
    return torch.stack(xs).sum(0)


@ROWS(randn(4), kwargs={"scale": 2.0, "more": {"a": 1}})
def keywords(x, *, scale=1.0, **rest):
    return x * scale + rest["more"]["a"]


# -- Which tensors require a gradient ----------------------------------------------------------------------------------
@ROWS(calls=((randn(4, 4, requires_grad=True),), (randn(4, 4),)), expect=(MISS, HIT, HIT, HIT))
def views_without_grad_mode(x):
    return x.unbind(0)[0], x.detach(), x.data, x.detach()[0], x + 1


@ROWS(randn(4, 4), randn(4, requires_grad=True), replays="gradients", grad=True)
def a_write_of_what_autograd_follows(x, w):
    x.mul_(w)
    return x


@ROWS(
    randn(4, 4),
    randn(4, requires_grad=True),
    randn(4, 4),
    replays="gradients",
    grad=True,
    regions=2,
    ends=("is_nonzero",),
)
def a_region_that_only_writes_what_autograd_follows(x, w, buffer):
    y = x * w
    if x.sum() < 1000:
        buffer.copy_(y)
    return buffer


@ROWS(randn(4, 4, requires_grad=True), replays="gradients", grad=True, regions=2, ends=("is_nonzero",))
def a_detached_tensor_beside_what_it_was_detached_from(x):
    y = x * 1
    detached = y.detach()
    if y.sum() < 1000:
        y = y + 1
    return detached * 2, y * 2


@ROWS(randn(4, 4, requires_grad=True), randn(4, requires_grad=True), replays="gradients", grad=True)
def data_is_written_behind_the_back_of_autograd(x, w):
    y = x * w
    y.data.mul_(2)
    return y * y


def test_views_can_be_written_as_those_of_eager():
    """A view remembers the mode it was made in, and how often its base had been written then."""

    def views(x):
        y = x + 1
        x.mul_(2).t_()
        return y[0], y[1], x[:, 0]

    w = torch.ones(3, requires_grad=True)
    for backend in ("torchbolt", "aot_eager"):
        compiled = torchbolt.compile(views, backend=backend)
        for _ in range(2):
            for i in range(3):
                view = compiled(torch.ones(2, 3))[i]
                assert view.is_leaf
                view.mul_(w)
                assert view.grad_fn is not None
        with torch.no_grad():
            assert compiled(torch.ones(2, 3, requires_grad=True))[2].is_leaf


# -- Classes of modules ------------------------------------------------------------------------------------------------
class Counts(torch.nn.Module):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return x * self.calls + (type(self) is Counts)


def test_a_module_runs_as_an_object_of_its_own_class():
    compiled = torchbolt.compile(Counts())
    results = [compiled(torch.ones(2)) for _ in range(3)]
    assert [r[0].item() for r in results] == [2, 3, 4]
    assert Counts.calls == 3


def test_layers_that_become_one_are_counted_once():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + 1

    model = torch.nn.Sequential(Layer(), Layer())
    compiled = torchbolt.compile(model)
    for layer in model:
        layer.calls = 0
    compiled(torch.ones(2))
    assert [layer.calls for layer in model] == [1, 1]
    model[1] = model[0]
    compiled(torch.ones(2))
    assert model[0].calls == 3


def test_what_a_token_gives_back_is_of_the_call():
    variable, other = contextvars.ContextVar("variable", default=2), contextvars.ContextVar("other")

    def set_and_reset(x):
        token, unset = variable.set(5), other.set(1)
        inner = variable.set(x.shape[0])
        y = x * variable.get()
        variable.reset(inner)
        y = y + variable.get()
        variable.reset(token)
        other.reset(unset)
        return y * variable.get()

    def run():
        values = []
        compiled = torchbolt.compile(set_and_reset)
        for value in (2, 3, 3):
            variable.set(value)
            values.append((compiled(torch.ones(2)).tolist(), variable.get(), other.get(None)))
        return values

    assert contextvars.copy_context().run(run) == [([14.0] * 2, 2, None), ([21.0] * 2, 3, None), ([21.0] * 2, 3, None)]


def test_set_to_what_it_was_and_reset_in_part():
    variable = contextvars.ContextVar("variable", default=2)

    def nested(x):
        outer = variable.set(2)
        inner = variable.set(7)
        y = x * variable.get()
        variable.reset(inner)
        y = y + variable.get()
        variable.reset(outer)
        return y + variable.get()

    def run():
        compiled, values = torchbolt.compile(nested), []
        for value in (2, 3, 2):
            variable.set(value)
            values.append((compiled(torch.ones(1)).item(), variable.get()))
        return values

    assert contextvars.copy_context().run(run) == [(11.0, 2), (12.0, 3), (11.0, 2)]


class Deep(torch.nn.Linear):
    calls = 0
    gain = 1.0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x) * self.gain

    @classmethod
    def counted(cls):
        cls.calls += 1
        return cls

    @property
    def half(self):
        return self.gain / 2

    @half.setter
    def half(self, value):
        self.gain = value * 2


def test_methods_of_a_compiled_module_write_to_its_class():
    model = Deep(2, 2)
    compiled, x = torchbolt.compile(model), torch.ones(1, 2)
    assert issubclass(compiled.counted(), Deep) and Deep.calls == 1
    compiled.half = 2.0
    assert model.gain == 4.0 and compiled.half == 2.0
    assert torch.equal(compiled(x), model(x)) and torch.equal(compiled.forward(x), model(x))
    assert Deep.calls == 5
    assert compiled.train() is compiled and isinstance(compiled, Deep)


def test_a_compiled_module_of_an_abstract_class():
    class Base(torch.nn.Module, abc.ABC):
        calls = 0

        @abc.abstractmethod
        def forward(self, x): ...

    class Layer(Base):
        def forward(self, x):
            type(self).calls += 1
            return x + 1

    state = Layer._abc_impl
    compiled = torchbolt.compile(Layer())
    assert compiled(torch.ones(1)).item() == compiled.forward(torch.ones(1)).item() == 2
    assert Layer.calls == 2 and Layer._abc_impl is state and isinstance(compiled, Base)


def test_a_compiled_module_changes_its_class():
    model = Deep(2, 2)
    compiled, x = torchbolt.compile(model), torch.ones(1, 2)
    compiled(x)
    compiled.__class__ = type("Deeper", (Deep,), {"gain": 3.0})
    assert type(model).__name__ == "Deeper" and isinstance(compiled, type(model))
    assert torch.equal(compiled(x), torch.nn.functional.linear(x, model.weight, model.bias) * 3)
    model.__class__ = Deep
    assert torch.equal(compiled(x), torch.nn.functional.linear(x, model.weight, model.bias))
    compiled.__class__ = type(torchbolt.compile(type("Deepest", (Deep,), {"gain": 5.0})(2, 2)))
    assert type(model).__name__ == "Deepest"
    assert torch.equal(compiled(x), torch.nn.functional.linear(x, model.weight, model.bias) * 5)


def test_gradients_that_are_set():
    """zero_grad is one region of effects, and a gradient that was set is what is read after it."""

    def fn(model, x):
        model.zero_grad()
        first, second = model.weight, model.bias
        first.grad, second.grad = first * 2, x
        second.grad = second.grad + 1
        return model.weight.grad.sum() + second.grad.sum()

    torchbolt.reset()
    model = torch.nn.Linear(3, 3)
    compiled = torchbolt.compile(fn)
    grads = [None, torch.ones(3, 3), torch.ones(3, 3), None]
    with torch.no_grad():
        for grad in grads * 2:
            seen = []
            for run in (fn, compiled):
                x = torch.arange(3.0)
                model.weight.grad = grad
                seen.append((run(model, x), model.weight.grad, model.bias.grad, x))
            for got, want in zip(*seen, strict=True):
                torch.testing.assert_close(got, want)
    stats = torchbolt.stats()
    assert (stats["graph_breaks"], stats["eager_fallbacks"], stats["regions"]) == (0, 0, 2)


class Tally:
    def __init__(self):
        self.n, self.items, self.me = 1, [1], self


MISSING = object()


@ROWS.made(randn(2), expect=(MISS, MISS, HIT, HIT), regions=2)
def which_object_it_is_says_nothing_of_what_is_in_it():
    """A counter is followed, though the object that has it, lists of it and the number itself are told apart."""
    counts = Tally()

    def program(x):
        counts.n += 1
        counts.items[0] = counts.n
        kept = [counts.n]
        same = counts.me is counts, kept is counts.items, counts.items is not kept
        return x * counts.n, same, counts.n is MISSING, counts.n is True, kept

    return program


def test_a_gradient_of_two_names():
    """What was read of one tensor and set of another holds for calls in which those are two."""

    def fn(a, b, x):
        a.grad = None
        return x + (1 if b.grad is None else 2)

    compiled, x = torchbolt.compile(fn), torch.zeros(2)
    for same in (False, True, False, True):
        a, b = torch.ones(2), torch.ones(2)
        a.grad, b.grad = torch.ones(2), torch.ones(2)
        b = a if same else b
        assert compiled(a, b, x)[0] == (1 if same else 2) and a.grad is None and (b.grad is None) == same


def test_a_gradient_that_does_not_fit():
    def fn(p, x):
        try:
            p.grad = x
        except RuntimeError:
            return x + 1
        return x + 2

    compiled = torchbolt.compile(fn)
    for rows in (3, 2, 3, 4, 3):
        p = torch.ones(3)
        assert compiled(p, torch.zeros(rows))[0] == (2 if rows == 3 else 1) and (p.grad is None) == (rows != 3)


@ROWS.made(calls=tuple((randn(3), n) for n in (3, 6, 7, 8)), expect=(MISS, MISS, HIT, HIT), regions=2)
def an_argument_differs_where_what_is_kept_does():
    kept = {}

    def fn(x, n):
        first = not kept
        kept["last"] = n
        return x + n, first

    return fn


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_state_programs(row):
    row.check()
