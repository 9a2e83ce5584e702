# tests/end_to_end/test_lengths.py
"""Containers from outside that are longer or shorter from call to call: histories, replay buffers, caches.

A row says which calls record ("1") and which are hits ("."). Two recordings (the first call, and the one that showed that
lengths differ), then one for each new way that the program decides on a length.
"""

from __future__ import annotations

import collections

import pytest
import torch
from kept_state import check, shown

import torchbolt

CASES = []


def case(records, **state):
    def add(fn):
        CASES.append(pytest.param(fn, state, records, id=fn.__name__))
        return fn

    return add


@case("1.......", h=[])
def grows(x, s):
    s.h.append(x * 2)
    return x + 1


@case("11......", h=[])
def used_in_arithmetic(x, s):
    s.h.append(0.5)
    return x * len(s.h), x / max(1, len(s.h)), x + torch.tensor(len(s.h)), len(s.h), f"{len(s.h)} items"


@case("11.....1..", h=[])
def bounded(x, s):
    s.h.append(x * 2)
    if len(s.h) > 7:
        s.h.pop(0)
    return x + 1


@case("11..1.....", h=[])
def given_back(x, s):
    s.h.append(x * 2)
    if len(s.h) > 4:
        x = x + s.h.pop(0)
    return x


@case("11......", h=[])
def asked_if_empty(x, s):
    if s.h:
        x = x + s.h[-1]
    s.h.append(x * 0.5)
    return x


@case("11......", h=[])
def counted_from_the_end(x, s):
    s.h.append(x * 0.5)
    return s.h[-1] + s.h[len(s.h) - 1]


@case("11......", h=[torch.ones(3)])
def items_that_were_there(x, s):
    y = s.h[-1] + s.h[len(s.h) - 1]
    s.h.append(y + x)
    return s.h[-2] + s.h[0] * len(s.h)


@case("111.....", h=[])
def last_three(x, s):
    s.h.append(x * 0.5)
    return sum(s.h[-3:])


@case("111.....", h=[])
def cut_to_the_last_three(x, s):
    s.h.append(x)
    s.h = s.h[-3:]
    return x * len(s.h)


@case("1.......", h=[])
def put_and_taken(x, s):
    s.h.append(x)
    s.h.append(x * 2)
    return s.h.pop()


@case("11......", h=[])
def put_in_front(x, s):
    s.h.insert(0, x * 2)
    return s.h[0] * len(s.h)


@case("11......", h=[])
def written_where_it_was_put(x, s):
    s.h.append(x)
    s.h[-1] = s.h[-1] * 2
    return x * len(s.h)


@case("11......", h=[])
def grows_in_a_loop(x, s):
    for i in range(3):
        s.h.append(x * i)
    s.h += [x]
    s.h.extend([x, x])
    return x * len(s.h)


@case("11.1....", h=[])
def emptied(x, s):
    s.h.append(x)
    if len(s.h) >= 4:
        s.h.clear()
    return x * len(s.h)


@case("11.1....", h=[])
def replaced(x, s):
    s.h.append(x)
    if len(s.h) >= 4:
        s.h = []
    return x * (len(s.h) + 1)


@case("11.1.....", h=[])
def in_turn(x, s):
    s.h.append(x)
    return x * 2 if len(s.h) % 4 == 0 else x * 3


@case("11..1...", h=[])
def first_deleted(x, s):
    s.h.append(x)
    if len(s.h) > 4:
        del s.h[0]
    return x * 2


@case("11..1....", h=collections.deque(maxlen=4))
def deque_with_a_limit(x, s):
    s.h.append(x * 2)
    return x * len(s.h) + s.h[-1]


@case("1.......", h=collections.deque([torch.ones(3)]))
def first_in_first_out(x, s):
    s.h.append(x * 2)
    s.h.append(x * 3)
    return x + s.h.popleft()


@case("11......", d={}, n=0)
def dict_that_grows(x, s):
    s.d[s.n] = x * 2
    s.n += 1
    return x * len(s.d)


@case("11......", d={"a": 0})
def dict_by_length(x, s):
    s.d[len(s.d)] = x * 2
    s.d["a"] = x
    return x * len(s.d)


@case("111.....", d=collections.defaultdict(list))
def lists_in_a_dict(x, s):
    s.d["a"].append(x)
    return x * len(s.d["a"])


@case("11.11......", d={}, n=0)
def dict_that_is_emptied(x, s):
    s.d[s.n] = x * 2
    s.n += 1
    if len(s.d) > 3:
        s.d.clear()
        s.d["first"] = x
    return x * len(s.d), "first" in s.d, s.d.get(0)


@case("11.......", h=[])
def written_anew(x, s):
    s.h[:] = [x, len(s.h)]
    return x * len(s.h) + s.h[0]


@case("11..1.....", d=collections.OrderedDict(), n=0)
def bounded_cache(x, s):
    if len(s.d) >= 4:
        s.d.popitem(last=False)
    s.d[s.n] = x * 2
    s.n += 1
    return x + 1


@case("11......", h=[])
def put_in_front_and_taken_behind(x, s):
    s.h.append(x)
    s.h.insert(0, x + 1)
    return x * len(s.h) + s.h[1] + s.h.pop(0)


@case("11......", h=[])
def mean_of_all(x, s):
    s.h.append(float(len(s.h)))
    return x * (sum(s.h) / len(s.h)), x * max(s.h), min(s.h)


@case("11......", h=[])
def asked_as_a_whole(x, s):
    s.h.append(len(s.h) + 1)
    if 7000 in s.h or not all(s.h):
        return x
    return x + s.h.count(2), str(s.h)


@case("1111.......", h=[])
def mean_of_the_last(x, s):
    s.h.append(s.h[-1] + 0.5 if s.h else 1.5)
    s.h.insert(0, 2)
    if len(s.h) > 6:
        s.h.pop(1)
        s.h.pop()
    return x * sum(s.h), max(s.h)


@case("11......", h=[])
def mean_of_losses(x, s):
    s.h.append(x.sum().item())
    return x + 1, sum(s.h) / len(s.h)


@case("11......", t=())
def tuple_that_grows(x, s):
    s.t = s.t + (x * 2,)
    return x + 1


@case("11......", t=())
def tuple_that_grows_by_numbers(x, s):
    s.t += (0.5, x.sum().item())
    return x * len(s.t), s.t[-2]


@case("11......", t=())
def tuple_made_anew(x, s):
    last = s.t[-1] if s.t else x
    s.t = (*s.t, x * 2)
    return x * len(s.t) + last


@case("11..1...", t=())
def last_of_a_tuple(x, s):
    s.t = s.t[-3:] + (x,)
    return x * len(s.t)


@case("11......", t=(torch.ones(3),))
def tuple_in_front(x, s):
    s.t = (x, *s.t)
    return s.t[0] + s.t[1] * len(s.t)


@case("11......", t=())
def tuple_without_its_ends(x, s):
    for i in range(2):
        s.t = s.t + (x, i)
    s.kept = s.t[1:-1]
    return x * len(s.kept) + s.kept[-1]


@case("11......", h=[])
def list_made_anew(x, s):
    s.h = [x * 2, *s.h]
    s.copy = s.h + [x]
    s.copy.append(len(s.copy))
    return x * len(s.h) + s.copy[0]


@case("11111........", w=[])
def mean_of_a_window(x, s):
    s.w.append(float(len(s.w)))
    recent = s.w[-5:]
    return x * (sum(recent) / len(recent)), max(s.w[:3]), recent


@case("11......", w=[0.5] * 70)
def mean_of_a_long_window(x, s):
    s.w.append(float(len(s.w)))
    recent = s.w[-66:]
    return x * (sum(recent) / len(recent)), recent[-1], recent


@case("11......", w=())
def mean_of_a_tuple(x, s):
    s.w += (float(len(s.w)),)
    return x * (sum(s.w) / len(s.w)), max(s.w)


@case("111.....", w=[])
def cut_to_the_last(x, s):
    s.w.append(x * 2)
    del s.w[:-2]
    return x * len(s.w) + s.w[0]


@case("11..1.....", w=[])
def numbers_cut_to_the_last(x, s):
    s.w.append(len(s.w) + 0.5)
    if len(s.w) > 4:
        del s.w[:-3]
    return x * sum(s.w)


@case("11......", w=[], n=0)
def numbers_that_are_left(x, s):
    s.n += 1
    s.w += [s.n, s.n + 1]
    del s.w[:-2]
    return x * s.n, list(s.w)


@case("11..1.....", w=[])
def cut_from_behind(x, s):
    s.w += [x, 1, x * 2]
    del s.w[-1:]
    del s.w[:1]
    del s.w[4:]
    del s.w[:0], s.w[100:]
    return x * len(s.w) + s.w[-1]


@case("11......", w=[0.5] * 5, d={}, n=0)
def put_and_popped(x, s):
    s.d[s.n] = x * s.n
    s.d["x"] = 2
    s.n += 1
    a, b = s.d.popitem(), s.d.popitem()
    s.d[-s.n] = 1
    return a, b, len(s.d)


@pytest.mark.parametrize("fn, state, records", CASES)
def test_lengths_that_change(fn, state, records):
    assert check(fn, state, len(records)) == records


@pytest.mark.parametrize("kind", [list, set, collections.deque, dict.fromkeys])
def test_containers_that_others_fill(kind):
    def fn(x, s):
        return x * len(s.h) if s.h else x

    def between(state, i):
        state.h = kind(range(i + 1))

    assert check(fn, {"h": None}, 6, between) == "11...."


def test_two_names_for_one_list():
    def fn(x, s):
        s.a.append(x)
        return x * len(s.b)

    def between(state, i):
        if i == 5:
            state.b = list(state.b)

    both = []
    assert check(fn, {"a": both, "b": both}, 8, between) == "11...1.."


def test_how_much_a_deque_holds_decides():
    def fn(x, s):
        s.h.append(x)
        return x

    def between(state, i):
        state.h = collections.deque([torch.ones(3)] * 2, (2, None, 3)[i % 3])

    assert check(fn, {"h": None}, 6, between) == "111..."


READERS = [
    lambda t, x: [each for each in t],
    lambda t, x: (t * 2, t + t, t == t, 1 if t else 2),
    lambda t, x: (f"{t}", "%s" % (t,), str((1, t))),
    lambda t, x: (t[:], t[1:], t[:-1], t[5:], t[::2], t[-2:], t[-9:], t[:9], [*t[-9:], x]),
    lambda t, x: [each for each in (*range(70), *t)[-66:]],
    lambda t, x: (t[0], t[-1], t.count(t[0]), t[0] in t) if t else x,
    lambda t, x: (t is t + type(t)(), t + type(t)([x]), type(t)([x]) + t, [x, *t], (*t, *t)),
    lambda t, x: sorted([*t, 1.5]),
    lambda t, x: ([*t].pop(), sum([*t]), len([x, *t])) if t else x,
    lambda t, x: torch.tensor([*t, 1.0]),
    lambda t, x: list(zip(t, reversed(t))),
]


@pytest.mark.parametrize("reads", READERS)
@pytest.mark.parametrize("kind", [list, tuple])
def test_readers_of_what_was_joined(kind, reads):
    def fn(x, s):
        seen = reads(s.t, x), s.t
        s.t = s.t + kind([float(len(s.t))])
        return seen, reads(s.t, x)

    def between(state, i):
        if i % 5 == 4:
            state.t = kind([2.5, 0.5, 1.5][: i % 4])

    check(fn, {"t": kind()}, 12, between)


def test_a_tuple_that_is_a_constant_of_the_program():
    def fn(x, s):
        before, s.t = s.t, (1.5, 2.5)
        s.u = s.u + (1.5,)
        return before, s.u, (1.5, 2.5), x + 1

    def between(state, i):
        if i % 2:
            state.t = (0.5,) * i

    check(fn, {"t": (), "u": ()}, 8, between)


def test_popped_numbers_are_read_late():
    def fn(x, s):
        s.h.append(float(len(s.h)))
        if len(s.h) > 3:
            s.h.pop(0)
            s.last = s.h.pop(0)
            s.h.insert(0, s.last)
        return x + 1

    assert check(fn, {"h": []}, 10) == "11.1......"


def test_cache_that_is_asked():
    def fn(x, s):
        s.n = (s.n + 1) % 3
        key = "abc"[s.n]
        if key in s.d:
            s.d.move_to_end(key)
        s.d[key + "!"] = s.n
        s.d.move_to_end(key + "!")
        if len(s.d) > 5:
            s.d.popitem(last=False)
        return x * s.n, s.d.get(key), "c" in s.d

    check(fn, {"d": collections.OrderedDict(a=1, b=2, c=3), "n": 0}, 8)


def test_sums_of_other_things_than_numbers():
    def fn(x, s):
        s.h.append(1)
        return x + sum(s.h)

    def between(state, i):
        state.h = [2] * i if i < 4 else [torch.ones(3)] * i

    assert check(fn, {"h": None}, 7, between)[:4] == "11.."


def test_lists_that_grow_by_themselves():
    def fn(x, s):
        s.h *= 2
        return x * len(s.h)

    check(fn, {"h": [1, 2, 3]}, 4)


def test_sets_in_an_order_that_a_copy_has_not():
    def fn(x, s):
        s.h.add(10)
        return x * len(s.h)

    def between(state, i):
        state.h = set(range(30))  # a table for many; a copy puts 25 before 10
        state.h -= set(range(30)) - {10, 25}

    assert check(fn, {"h": None}, 5, between) == "1...."


def test_histories_that_modules_keep():
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen, self.last = (), []

        def forward(self, x):
            self.seen = self.seen + (x.sum().item(),)
            self.last = [*self.last, x]
            return x * len(self.seen)

    mine, eagers = Keeps(), Keeps()
    compiled = torchbolt.compile(mine)
    for i in range(6):
        x = torch.arange(3.0) + i
        before = torchbolt.stats()["recordings"]
        assert shown(compiled(x)) == shown(eagers(x))
        assert shown([mine.seen, mine.last]) == shown([eagers.seen, eagers.last])
        assert i < 2 or torchbolt.stats()["recordings"] == before


WHOLE = [
    lambda x, w: x * (sum(w) / len(w)),
    lambda x, w: x * max(w) - min(w),
    lambda x, w: torch.cat([x, x.new_zeros(max(w))]),
    lambda x, w: x + any(w),
    lambda x, w: (x * sum(w), torch.tensor(w)),
]


@pytest.mark.parametrize("fn", WHOLE)
def test_lists_with_nothing_in_common(fn):
    """Neither how many numbers they are nor any of them is as before."""
    torchbolt.reset()
    compiled, x = torchbolt.compile(fn), torch.randn(3)
    for length in (3, 4, 5, 6, 7, 8, 3, 9, 10, 11):
        w = [(7 * i + length) % 13 + 1 for i in range(length)]
        torch.testing.assert_close(compiled(x, w), fn(x, w))
    assert torchbolt.stats()["recordings"] == 2 and torchbolt.stats()["eager_fallbacks"] == 0
