# tests/observe/test_guards.py
"""Change what a run read: its guards fail and say why. Change what it did not read: they hold."""

import functools
import math
import operator

import pytest
import torch
from helper import Seen
from torch import nn

SCALE = 2
TABLE = {"a": 1, "b": [1, 2]}


class Box:
    kind = "box"

    def __init__(self, size):
        self.size = size
        self.unused = 0

    @property
    def double(self):
        return self.size * 2

    def __getattr__(self, name):
        if name == "computed":
            return self.__dict__["size"] + 1
        raise AttributeError(name)


def add(x, y=1):
    return x + y


def test_leaf_arguments_are_guarded_by_value_and_type():
    seen = Seen(add, 3, 4).sound()
    assert seen.result == 7
    assert seen.holds(3, 4)
    assert not seen.holds(3, 5)
    assert not seen.holds(3, 4.0)
    assert not seen.holds(True, 4)
    assert "y == 4" in seen.why(3, 5)


def test_negative_zero_and_nan_are_values():
    seen = Seen(add, -0.0, math.nan).sound()
    assert seen.holds(-0.0, math.nan)
    assert not seen.holds(0.0, math.nan)


def test_instance_attributes():
    def read(box):
        return box.size + box.double + box.computed

    box = Box(3)
    seen = Seen(read, box).sound()
    assert seen.result == 13
    box.unused = 7
    assert seen.again()
    assert seen.holds(Box(3)), "another instance with equal state"
    box.size = 4
    assert not seen.again()
    assert "box.size" in seen.why(box)
    box.size = 3
    assert seen.again()


class Scaled:
    """A descriptor smaller than a property, which the interpreter must not take for one."""

    __slots__ = ()

    def __get__(self, box, owner):
        return box.size * SCALE


def test_descriptor_without_fields():
    class Holder(Box):
        scaled = Scaled()

    def read(box):
        return box.scaled

    box = Holder(3)
    seen = Seen(read, box).sound()
    assert seen.result == 6
    box.size = 4
    assert not seen.again()


def test_absent_attribute_is_guarded():
    def read(box):
        return hasattr(box, "extra")

    box = Box(1)
    seen = Seen(read, box).sound()
    assert seen.result is False
    box.extra = 1
    assert not seen.again()


def test_class_attribute_and_its_shadow():
    def read(box):
        return box.kind

    box = Box(1)
    seen = Seen(read, box).sound()
    try:
        Box.kind = "crate"
        assert not seen.again()
    finally:
        Box.kind = "box"
    assert seen.again()
    box.kind = "own"
    assert not seen.again()


def test_changed_class_of_an_object():
    class Other(Box):
        pass

    def read(box):
        return box.size

    box = Box(1)
    seen = Seen(read, box).sound()
    box.__class__ = Other
    assert not seen.again()


def test_globals():
    def read(x):
        return x * SCALE

    global SCALE
    seen = Seen(read, 2).sound()
    try:
        SCALE = 3
        assert not seen.again()
    finally:
        SCALE = 2
    assert seen.again()


def test_builtin_shadowed_by_a_global():
    def read(x):
        return abs(x)

    seen = Seen(read, -2).sound()
    try:
        globals()["abs"] = lambda x: x
        assert not seen.again()
    finally:
        del globals()["abs"]
    assert seen.again()


def test_closure_cells():
    n = 1

    def read(x):
        return x + n

    seen = Seen(read, 2).sound()
    n = 5
    assert not seen.again()


def test_defaults():
    def read(x, y=2, *, z=3):
        return x + y + z

    seen = Seen(read, 1).sound()
    assert seen.again()
    read.__defaults__ = (9,)
    assert not seen.again()
    read.__defaults__ = (2,)
    read.__kwdefaults__ = {"z": 4}
    assert not seen.again()


def test_code_of_a_called_function():
    def inner(x):
        return x + 1

    def other(x):
        return x + 2

    def read(x):
        return inner(x)

    seen = Seen(read, 1).sound()
    inner.__code__ = other.__code__
    assert not seen.again()


def test_dict_items():
    def read(table):
        return table["a"], table.get("zz")

    table = {"a": 1, "b": 2}
    seen = Seen(read, table).sound()
    table["b"] = 5
    assert seen.again()
    assert seen.holds({"a": 1})
    table["zz"] = 1
    assert not seen.again()
    del table["zz"]
    table["a"] = 2
    assert not seen.again()


def test_dict_iteration_sees_order_and_keys():
    def read(table):
        return list(table.items())

    seen = Seen(read, {"a": 1, "b": 2}).sound()
    assert seen.holds({"a": 1, "b": 2})
    assert not seen.holds({"b": 2, "a": 1})
    assert not seen.holds({"a": 1})


def test_list_length_and_items():
    def read(items):
        return sum(items), len(items)

    items = [1, 2, 3]
    seen = Seen(read, items).sound()
    assert seen.again()
    items[1] = 7
    assert not seen.again()
    items[1] = 2
    assert seen.again()
    items.append(0)
    assert not seen.again()


def test_one_item_of_a_list():
    def read(items):
        return items[1]

    assert Seen(read, [1, 2, 3]).sound().holds([9, 2, 9])


def test_sets():
    def read(items, x):
        return x in items

    seen = Seen(read, {"p", "q"}, "p").sound()
    assert seen.again()
    assert not seen.holds({"p"}, "p")
    assert not seen.holds(seen.args[0] | {"r"}, "p")


def test_two_paths_to_one_object():
    def read(a, b):
        a.size
        return b.size

    box = Box(1)
    seen = Seen(read, box, box).sound()
    assert seen.again()
    assert not seen.holds(Box(1), Box(1))


def test_objects_that_were_different_and_are_compared():
    def read(a, b):
        return a is b

    seen = Seen(read, Box(1), Box(1)).sound()
    box = Box(1)
    assert not seen.holds(box, box)


@pytest.mark.parametrize("same", [True, False])
def test_relations_that_do_not_hold_do_not_hold_the_second_time_either(same):
    """A walk that finds the same kinds of objects proves every place, not that they are different ones."""

    def read(box):
        return len({box.size, box.other}), box.size is box.other

    box, (a, b) = Box(Box(1)), (Box(1), Box(1))
    box.size, box.other = (a, a) if same else (a, b)
    seen = Seen(read, box).sound()
    assert seen.again() and seen.again()
    box.other = b if same else a
    assert [seen.holds(box) for _ in range(3)] == [False] * 3
    box.other = a if same else b
    assert seen.holds(box) and seen.holds(box)


def test_relations_of_two_arguments_hold_for_the_pairs_they_were_seen_with():
    def read(a, b):
        return len({a.size, b.size})

    each = [Box(Box(1)) for _ in range(3)]
    each[2].size = each[0].size
    seen = Seen(read, each[0], each[1]).sound()
    assert seen.holds(each[2], each[1])
    assert [seen.holds(each[0], each[2]) for _ in range(2)] == [False] * 2
    assert seen.holds(each[0], each[1])


def test_tensors():
    def read(x, y):
        return x @ y

    x, y = torch.randn(2, 3), torch.randn(3, 4)
    seen = Seen(read, x, y).sound()
    assert seen.holds(torch.randn(2, 3), torch.randn(3, 4))
    assert not seen.holds(torch.randn(2, 3), torch.randn(4, 3).t())
    assert not seen.holds(torch.randn(2, 3).double(), y)
    assert not seen.holds(torch.randn(4, 3), y)
    assert not seen.holds(torch.randn(2, 3, requires_grad=True), y)
    assert not seen.holds(torch.nn.Parameter(torch.randn(2, 3)), y)
    assert "x is Float[2, 3]" in seen.why(torch.randn(4, 3), y)


def dtype_changed(p):
    p.data = p.data.double()


def shape_changed(p):
    p.data = torch.ones(2 * p.numel()).reshape(2, -1)


def spread(p):
    p.data = torch.ones([2 * s for s in p.shape])[tuple(slice(None, None, 2) for _ in p.shape)]


def turned(p):
    p.data = torch.ones(p.shape[::-1]).permute(*reversed(range(p.dim())))


def grown(p):
    with torch.no_grad():
        p.set_(torch.ones(24).untyped_storage(), 0, (6, 4), (4, 1))


def swapped(p):
    torch.utils.swap_tensors(p, nn.Parameter(torch.ones(4, 7)))


def of_another_class(p):
    p.__class__ = nn.parameter.Buffer


def frozen(p):
    p.requires_grad_(False)


# Those of one shape are compared together, those whose strides follow from their sizes by these alone.
@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 3), (4, 1), (2, 3, 4), (2, 1, 3, 3), (1, 2, 1, 2, 1, 2)], ids=str)
@pytest.mark.parametrize(
    "change", [dtype_changed, shape_changed, spread, turned, grown, swapped, of_another_class, frozen]
)
def test_metadata_of_a_parameter_that_stays_the_same_object(change, shape):
    if change is turned and len(shape) == 1:
        return
    weights = [nn.Parameter(torch.ones(shape)) for _ in range(4)]
    seen = Seen(lambda ws, k: sum(w.sum() * k for w in ws), weights, 2)
    assert seen.again() and seen.again()  # what matched once is compared as it lies in memory
    change(weights[2])
    assert not seen.again(), change.__name__
    assert "ws[2]" in seen.why(weights, 2)


def test_values_and_memory_of_a_parameter_are_no_guards():
    model = nn.Linear(4, 3)
    seen = Seen(lambda m, k: m.weight * k, model, 2)
    assert seen.again()
    model.weight.data = torch.zeros(3, 4)
    assert seen.again()
    model.weight.data = torch.zeros(30, 4)[5:8]
    assert seen.again()


def test_tensors_that_shared_memory():
    def read(x, y):
        return x + y

    base = torch.randn(4, 3)
    seen = Seen(read, base, base[1:2]).sound()
    assert seen.holds(base, base[1:2])
    assert not seen.holds(base, base[2:3])
    assert not seen.holds(base, torch.randn(1, 3))


@pytest.mark.parametrize("change", ["grad", "dtype", "inference"])
def test_thread_state(change):
    seen = Seen(add, torch.ones(2)).sound()
    assert seen.again()
    if change == "grad":
        with torch.no_grad():
            assert not seen.again()
            assert "grad mode" in seen.why(torch.ones(2))
    elif change == "dtype":
        torch.set_default_dtype(torch.float64)
        try:
            assert not seen.again()
        finally:
            torch.set_default_dtype(torch.float32)
    else:
        with torch.inference_mode():
            assert not seen.again()
    assert seen.again()


def test_modules_share_a_program():
    model, twin = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    x = torch.randn(1, 3)
    seen = Seen(model, x).sound()
    assert seen.holds(x, fn=twin)
    assert seen.holds(x, fn=model)
    twin.bias = None
    assert not seen.holds(x, fn=twin)
    assert seen.holds(x, fn=model)
    model.register_forward_hook(lambda *a: None)
    assert not seen.holds(x, fn=model)


def test_training_flag():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    x = torch.randn(1, 3)
    seen = Seen(model, x).sound()
    model.eval()
    assert not seen.again()
    assert "training" in seen.why(x)
    model.train()
    assert seen.again()


def test_a_replaced_submodule():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    x = torch.randn(1, 3)
    seen = Seen(model, x).sound()
    model[1] = torch.nn.GELU()
    assert not seen.again()


def test_an_address_that_is_used_again_proves_nothing():
    def read(items):
        return items[0][0]

    seen = Seen(read, [[1000]]).sound()
    items = [[1000]]
    assert seen.holds(items)
    for value in range(2000, 2050):
        items[0] = [value]
        assert not seen.holds(items)
    items[0] = [1000]
    assert seen.holds(items)


def test_many_checks_leak_nothing():
    import sys

    box = Box(1)

    def read(box):
        return box.size

    seen = Seen(read, box).sound()
    seen.again()
    before = sys.getrefcount(box)
    for _ in range(1000):
        assert seen.again()
    assert sys.getrefcount(box) == before


class Held:
    """Callables made in C, found on an object."""

    def __init__(self, call):
        self.call = call


def test_a_partials_function_and_arguments():
    def run(held, x):
        return held.call(x)

    seen = Seen(run, Held(functools.partial(add, y=2)), 1).sound()
    assert seen.holds(Held(functools.partial(add, y=2)), 1)
    assert not seen.holds(Held(functools.partial(add, y=3)), 1)
    assert not seen.holds(Held(functools.partial(max, 2)), 1)


@pytest.mark.parametrize("first, second", [((operator.mul, 2), (operator.mul, 3)), ((pow, 2), (pow, 3))])
def test_a_partial_that_native_code_calls(first, second):
    def run(held, xs):
        return list(map(held.call, xs))

    seen = Seen(run, Held(functools.partial(*first)), [1, 2]).sound()
    assert seen.again()
    assert not seen.holds(Held(functools.partial(*second)), [1, 2])


def test_what_an_itemgetter_asks_for():
    def run(held, x):
        return held.call(x)

    getter = operator.itemgetter("a", "b")
    seen = Seen(run, Held(getter), {"a": 1, "b": 2, "c": 3}).sound()
    assert seen.result == (1, 2)
    assert seen.holds(Held(getter), {"a": 1, "b": 2, "c": 4})
    assert not seen.holds(Held(getter), {"a": 1, "b": 5})
    assert not seen.holds(Held(operator.itemgetter("a", "c")), {"a": 1, "b": 2, "c": 3})


def test_what_an_attrgetter_reads():
    def run(held, box):
        return held.call(box)

    getter = operator.attrgetter("call.size", "call.double")
    seen = Seen(run, Held(getter), Held(Box(3))).sound()
    assert seen.result == (3, 6)
    assert seen.holds(Held(getter), Held(Box(3)))
    assert not seen.holds(Held(getter), Held(Box(4)))
    assert not seen.holds(Held(operator.attrgetter("call.size", "call.kind")), Held(Box(3)))


def test_a_getter_that_holds_an_object_ends_the_region():
    def run(held, table):
        return held.call(table)

    key = Box(1)
    assert Seen(run, Held(operator.itemgetter(key)), {key: 1}).facts["end"] == "broke"


def test_a_getter_made_inside():
    def run(box):
        return sorted([box.size, operator.attrgetter("size")(box) - 1]), operator.itemgetter(1)([1, box.size])

    seen = Seen(run, Box(3)).sound()
    assert seen.result == ([2, 3], 3)
    assert not seen.holds(Box(4))


def test_a_methodcaller_ends_the_region():
    # Calling the class is harmless, and is not taken for calling what it makes.
    assert Seen(lambda: len([operator.methodcaller("upper")])).sound().result == 1

    def run(held, text):
        return held.call(text)

    seen = Seen(run, Held(operator.methodcaller("upper")), "a")
    assert seen.result == "A" and seen.facts["end"] == "broke"
