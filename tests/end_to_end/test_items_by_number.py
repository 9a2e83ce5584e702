# tests/end_to_end/test_items_by_number.py
"""Items by numbers and texts that differ from call to call: ring buffers, counts, sets of what was seen, caches.

A row says which calls record ("1") and which are hits ("."). Two recordings, then one for each new way that a lookup ends.
"""

from __future__ import annotations

import collections

import pytest
import torch
from kept_state import check

import torchbolt

CASES = []
ZERO = torch.zeros(3)


def case(records, **state):
    def add(fn):
        CASES.append(pytest.param(fn, state, records, id=fn.__name__))
        return fn

    return add


# -- Lists ---------------------------------------------------------------------------------------------------------------


@case("11..........", h=[ZERO] * 4, at=0)
def ring_of_tensors(x, s):
    s.h[s.at] = x * 2
    s.at = (s.at + 1) % len(s.h)
    return x + 1


@case("11..........", h=[0.0] * 4, at=0)
def ring_of_numbers(x, s):
    s.h[s.at] = x.sum().item()
    s.at = (s.at + 1) % len(s.h)
    return x + sum(s.h) / len(s.h)


@case("11..........", h=[None] * 4, at=0)
def written_and_read(x, s):
    s.h[s.at] = x
    s.h[s.at] = s.h[s.at] * 2
    s.at = (s.at + 1) % 4
    return x + 1


@case("11......", h=[0] * 9, n=0)
def counted_in_a_list(x, s):
    s.h[s.n] += 2
    s.h[s.n + 1] += s.h[s.n]
    s.n += 1
    return x * s.h[s.n]


@case("1111.1...", h=[0.5, 1.5, 2.5, 3.5], n=0)
def among_other_places(x, s):
    s.h[s.n % 4] = x.sum().item()
    s.n += 1
    return x + 1, s.h[1], s.h[-1]


@case("11......", h=[], n=0)
def written_behind_what_grows(x, s):
    s.h.append(s.n)
    s.h[s.n // 2] = 7
    s.n += 1
    return x * len(s.h)


@case("11......", n=0)
def from_a_table(x, s):
    s.n += 1
    return x * [1.0, 2.5, 3.0][s.n % 3] + (1, 2)[s.n % 2], "abc"[s.n % 3]


@case("11..........", h=[ZERO, ZERO + 1, ZERO + 2], at=0)
def tensors_by_place(x, s):
    s.at = (s.at + 1) % 3
    return x + s.h[s.at]


@case("11..........", h=[ZERO, ZERO + 1, ZERO + 2], at=0)
def tensors_written_by_place(x, s):
    s.at = (s.at + 1) % 3
    s.h[s.at].mul_(2).add_(x)
    return s.h[s.at] + 1, s.h[s.at]


@case("11..1.......", h=[ZERO, ZERO + 1, ZERO + 2], at=0)
def tensors_by_two_places(x, s):
    """Which may be one."""
    s.at += 1
    a, b = s.h[s.at % 3], s.h[s.at // 2 % 3]
    return a is b, a * 2 + b


SAME = torch.ones(3)


@case("111.........", h=[SAME, SAME + 1, SAME], at=1)
def one_tensor_at_two_places(x, s):
    s.at += 1
    return s.h[s.at % 3] + s.h[(s.at + 2) % 3] * x


@case("1111........", h=[torch.ones(3), torch.ones(1, 3), torch.ones(3, dtype=torch.float64), None], at=0)
def tensors_of_other_kinds(x, s):
    s.at = (s.at + 1) % 4
    return x if s.h[s.at] is None else x + s.h[s.at]


# -- Dicts ---------------------------------------------------------------------------------------------------------------


@case("11..........", c=collections.Counter({0: 0, 1: 0, 2: 0}), n=0)
def counted_again(x, s):
    s.c[s.n % 3] += 1
    s.n += 1
    return x * s.c[s.n % 3]


@case("111.1.......", c=collections.Counter(), n=0)
def elements_counted(x, s):
    """Those of which some were there, and those of which none was."""
    s.c.update([s.n % 4, "all"])
    s.n += 1
    return x * s.c["all"]


@case("11......", c=collections.Counter(), n=0)
def counted_anew(x, s):
    s.c[s.n] += 1
    s.n += 1
    return x * 2


@case("11..........", c={"a": 0, "b": 0, "c": 0}, n=0)
def counted_by_name(x, s):
    name = "abc"[s.n % 3]
    s.c[name] += 1
    s.n += 1
    return x * s.c[name], s.c.get(name)


@case("11.1........", c={}, n=0)
def counted_if_there(x, s):
    s.c[s.n % 3] = s.c.get(s.n % 3, 0) + 1
    s.n += 1
    return x * 2


@case("11.1........", d={}, n=0)
def first_in_first_out(x, s):
    s.d[s.n] = x * 2
    s.n += 1
    if len(s.d) > 3:
        s.d.pop(next(iter(s.d)))
    return x + len(s.d)


@case("11.1........", d={}, n=0)
def first_deleted(x, s):
    s.d[f"k{s.n}"] = x * 2
    s.n += 1
    if len(s.d) > 3:
        s.last = next(iter(s.d))
        del s.d[next(iter(s.d))]
    return x + 1


@case("11.1........", d=collections.OrderedDict(), n=0)
def two_oldest_deleted(x, s):
    s.d[s.n] = x * 2
    s.d[f"k{s.n}"] = x
    s.n += 1
    if len(s.d) > 6:
        del s.d[next(iter(s.d))]
        s.d.pop(next(iter(s.d)))
    return x + 1


def on_first_keys(test):
    """Of dicts with other numbers, texts and tensors in each call, and more or fewer of them."""
    items = [
        lambda i, n: {j: j * 2.0 for j in range(i, i + n)},
        lambda i, n: {f"k{j}": j * 2.0 for j in range(i, i + n)},
        lambda i, n: {f"k{j}": torch.full((3,), j + 0.5) for j in range(i, i + n)},
    ]
    lengths = [(3, 3, 3, 3, 3, 3), (3, 4, 2, 5, 3, 1)]
    return pytest.mark.parametrize("items", items)(pytest.mark.parametrize("lengths", lengths)(test))


def by_first_key(x, s):
    first = next(iter(s.d))
    return x * s.d[first], first


@on_first_keys
def test_the_first_key_of_a_dict_that_changes(items, lengths):
    def between(state, i):
        state.d.clear()
        state.d.update(items(i, lengths[i]))

    assert check(by_first_key, {"d": {}}, len(lengths), between) == "11...."


@on_first_keys
def test_the_first_key_of_other_dicts(items, lengths):
    given = [items(i, n) for i, n in enumerate(lengths)]

    def between(state, i):
        state.d = given[i]

    assert check(by_first_key, {"d": {}}, len(lengths), between) == "11...."


# -- Sets ----------------------------------------------------------------------------------------------------------------


@case("11......", seen=set(), n=0)
def seen_before(x, s):
    if s.n in s.seen:
        x = x * 3
    s.seen.add(s.n)
    s.seen.add(f"k{s.n}")
    s.seen.add("all")
    s.n += 1
    return x * len(s.seen)


@case("11.1....", seen={0, 1, 2}, n=0)
def taken_out(x, s):
    s.seen.discard(s.n)
    s.n += 1
    return x * len(s.seen)


@case("111111..", seen=set(), n=0)
def gone_through(x, s):
    s.seen.add(s.n % 3)
    s.n += 1
    return x + 1, list(s.seen)


# -- Texts ---------------------------------------------------------------------------------------------------------------


@case("11......", text="")
def text_that_grows(x, s):
    s.text += "ab"
    return x * len(s.text), s.text[-2:]


@pytest.mark.parametrize("fn, state, records", CASES)
def test_places_that_change(fn, state, records):
    assert check(fn, state, len(records)) == records


def test_whoever_goes_through_a_list_knows_its_places():
    def fn(x, s):
        s.h[s.n % 3] = 0
        s.n += 1
        return [each for each in s.h], sorted(s.h), x + 1

    def between(state, i):
        state.h = [0, 1, 0] if i % 2 else [1, 0, 1]

    check(fn, {"h": [0, 1, 0], "n": 0}, 8, between)


def test_a_list_joined_after_it_was_written():
    def fn(x, s):
        s.h[s.n % 3] = s.n
        s.n += 1
        s.h = s.h + [x]
        return x + 1

    check(fn, {"h": [0, 1, 2], "n": 0}, 6)


def test_elements_of_a_set_lie_where_they_would():
    def fn(x, s):
        s.seen.add(s.n)
        s.seen.add(s.n + 8)
        s.seen.discard(s.n)
        s.n += 1
        return x + 1

    assert check(fn, {"seen": {"a", "b"}, "n": 0}, 6) == "11...."


def of_a_length(x, masks):
    return x + masks[len(x)], masks[len(x)] * 2


def of_two_dimensions(x, masks):
    return (masks[len(x)][:, None] * x).tril(), masks[len(x)].view(-1)[1:]


@pytest.mark.parametrize("fn", [of_a_length, of_two_dimensions])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"backend": "eager"}, {"backend": "aot_eager"}])
def test_tensors_kept_for_each_length(fn, options):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, **options)
    masks = {n: torch.arange(float(n)) for n in range(20)}
    for n in (3, 5, 4, 7, 5, 3, 9, 4):
        x = torch.ones(n)
        torch.testing.assert_close(compiled(x, masks), fn(x, masks))
    assert torchbolt.stats()["recordings"] <= 2
    with pytest.raises(KeyError):
        compiled(torch.ones(50), masks)


def test_tensors_made_once_for_each_length():
    def fn(x, made):
        n = x.shape[0]
        if n not in made:
            made[n] = torch.arange(n) * 0.5
        return x + made[n]

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    mine, eagers = {}, {}
    records = ""
    for n in (3, 5, 4, 7, 5, 3, 9, 4):
        before = torchbolt.stats()["recordings"]
        assert torch.equal(compiled(torch.ones(n), mine), fn(torch.ones(n), eagers)) and list(mine) == list(eagers)
        records += "1" if torchbolt.stats()["recordings"] > before else "."
    assert records == "11..1..."


def test_weights_kept_for_each_length():
    """Not folded, since others come at each call."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = {n: torch.randn(n, n) for n in range(2, 12)}

        def forward(self, x):
            return torch.relu(x @ self.tables[x.shape[-1]])

    net = Net()
    compiled = torchbolt.compile(net)
    torchbolt.reset()
    for n in (3, 5, 4, 7, 5, 3, 9, 4):
        x = torch.randn(2, n)
        torch.testing.assert_close(compiled(x), net(x))
    assert torchbolt.stats()["recordings"] == 2


class OneOfAList(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = torch.nn.ParameterList(torch.full((4,), i + 1.0) for i in range(6))
        self.shifts = torch.nn.ParameterDict({f"shift{i}": torch.full((4,), i + 0.5) for i in range(6)})
        self.plain = [torch.nn.Parameter(torch.full((4,), i + 0.25)) for i in range(6)]

    def forward(self, x, i):
        return (x * self.scales[i] + self.shifts[f"shift{i}"]) * self.plain[i] - self.scales[-1]


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"backend": "eager"}, {"backend": "aot_eager"}])
def test_parameters_chosen_by_an_index(options):
    torchbolt.reset()
    net, eager = OneOfAList(), OneOfAList()
    compiled = torchbolt.compile(net, **options)
    records = ""
    for turn, i in enumerate((0, 1, 2, 4, 3, 1, 0, 2)):
        before = torchbolt.stats()["recordings"]
        with torch.set_grad_enabled(turn != 6):
            got, want = compiled(torch.ones(4), i), eager(torch.ones(4), i)
        records += "1" if torchbolt.stats()["recordings"] > before else "."
        torch.testing.assert_close(got, want)
        if not want.requires_grad:
            continue
        for module, result in ((net, got), (eager, want)):
            result.sum().backward()
            with torch.no_grad():
                for p in (*module.parameters(), *module.plain):
                    if p.grad is not None:
                        p -= 0.1 * p.grad
        mine, theirs = [*net.parameters(), *net.plain], [*eager.parameters(), *eager.plain]
        for p, q in zip(mine, theirs, strict=True):
            torch.testing.assert_close(p, q)
            assert (p.grad is None) == (q.grad is None)
    assert records in ("11....1.", "1.....1.")


def test_a_parameter_that_was_frozen_is_another():
    torchbolt.reset()
    net = OneOfAList()
    compiled = torchbolt.compile(net)
    for i in (0, 1, 2, 3):
        compiled(torch.ones(4), i)
    for p in (*net.parameters(), *net.plain):
        p.requires_grad_(False)
    assert not compiled(torch.ones(4), 2).requires_grad
    net.scales[3].requires_grad_()
    assert compiled(torch.ones(4), 3).requires_grad and not compiled(torch.ones(4), 2).requires_grad


def test_parameters_that_are_parametrised_or_sliced():
    class Twice(torch.nn.Module):
        def forward(self, x):
            return x * 2

    def fn(x, i):
        return x * net.scales[i] + sum(net.scales[1:3])

    net = OneOfAList()
    torch.nn.utils.parametrize.register_parametrization(net.scales, "1", Twice())
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for i in (0, 1, 2, 1, 3):
        torch.testing.assert_close(compiled(torch.ones(4), i), fn(torch.ones(4), i))
    with pytest.raises(IndexError, match="index 6 is out of range"):
        compiled(torch.ones(4), 6)


class Table:
    def __init__(self):
        self.rows = [torch.full((4,), i + 0.5) for i in range(6)]

    def __getitem__(self, i):
        return self.rows[i]


def test_an_item_by_a_class_of_the_users():
    def fn(x, table, i):
        return x * table[i]

    torchbolt.reset()
    compiled, table = torchbolt.compile(fn), Table()
    for i in (0, 1, 2, 4, 3):
        assert torch.equal(compiled(torch.ones(4), table, i), fn(torch.ones(4), table, i))
    assert torchbolt.stats()["recordings"] == 2


def test_two_names_for_one_dict():
    def fn(x, s):
        s.a[s.n] = x
        s.n += 1
        return x * len(s.b), s.b.get(s.n - 1)

    def between(state, i):
        if i == 4:
            state.b = dict(state.b)

    both = {}
    check(fn, {"a": both, "b": both, "n": 0}, 8, between)


def test_places_that_are_none():
    def fn(x, s):
        s.n += 1
        try:
            s.h[s.n] = x
        except IndexError:
            return x - 1
        try:
            return x * s.h[s.n - 6]
        except IndexError:
            return x + 1

    check(fn, {"h": [0.0, 1.0, 2.0], "n": -5}, 12)


def test_a_key_of_a_counter_stays_where_it_is():
    def fn(x, s):
        s.c[f"k{s.n}"] = s.n
        return x + 1

    def between(state, i):
        state.n = i % 3

    check(fn, {"c": collections.Counter(), "n": 0}, 8, between)


class Doubling(dict):
    """Its methods are asked, and asked once."""

    def __contains__(self, key):
        self.asked = getattr(self, "asked", 0) + 1
        return super().__contains__(key) or super().__contains__(key // 2)

    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)

    def __getitem__(self, key):
        return super().__getitem__(key) + 1


def test_dicts_with_methods_of_their_own():
    def fn(x, s):
        s.d[s.n] = s.n + 0.5
        s.n += 1
        return x * s.d[s.n - 1], s.n in s.d, list(s.d.values()), s.d.asked

    check(fn, {"d": Doubling({0: 1.5}), "n": 1}, 7)
