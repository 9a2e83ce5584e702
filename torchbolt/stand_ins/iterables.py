# torchbolt/stand_ins/iterables.py
"""In place of C functions that go through an iterable or call a function: any, sorted, list, reduce, ...

The recorder takes these only where that leads to Python code, which then runs in frames of the recorded loop. None
makes a generator for native code to run: a region could not end inside.
"""

from __future__ import annotations

import collections
import sys
import warnings

_OLD = sys.version_info < (3, 12)  # CPython's error texts

_MISSING = object()


def _gathered(iterable=()):
    items = []
    for item in iterable:
        items.append(item)
    return items


def _any(iterable):
    for item in iterable:  # noqa: SIM110  this is what any() is made of
        if item:
            return True
    return False


def _all(iterable):
    for item in iterable:  # noqa: SIM110
        if not item:
            return False
    return True


def _sum(iterable, /, *start, **named):
    return sum(_gathered(iterable), *start, **named)


def _tuple(iterable=()):
    return tuple(_gathered(iterable))


def _new_tuple(cls, iterable=()):
    return tuple.__new__(cls, _gathered(iterable))


def _set(iterable=()):
    return set(_gathered(iterable))


def _frozenset(iterable=()):
    return frozenset(_gathered(iterable))


def _deque(iterable=(), maxlen=None):
    return collections.deque(_gathered(iterable), maxlen)


def _join(separator, iterable):
    return str.join(separator, _gathered(iterable))


def _entries(given):
    """What a dict takes from this: of anything with keys() what belongs to them, of anything else pairs."""
    if not hasattr(given, "keys"):
        return _gathered(given)
    entries = {}
    for key in given.keys():  # noqa: SIM118  it may be gone through for something else
        entries[key] = given[key]
    return entries


def _with_pairs(function, place):
    """What makes or updates a dict, given what it takes in place of its argument."""

    def given(*args, **named):
        args = list(args)
        args[place] = _entries(args[place])
        return function(*args, **named)

    return given


def _extend(items, iterable):
    for item in iterable:
        list.append(items, item)


def _update(items, *iterables):
    for iterable in iterables:
        for item in iterable:
            set.add(items, item)


def _sorted(iterable, /, *, key=None, reverse=False):
    items = _gathered(iterable)
    if key is None:
        return sorted(items, reverse=reverse)
    keys = []
    for item in items:
        keys.append(key(item))
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return [items[i] for i in order]


def _sort(items, *, key=None, reverse=False):
    """Who looks at the list meanwhile finds it empty; who writes to it is told afterwards."""
    found = list.__getitem__(items, slice(None))
    list.clear(items)
    try:
        found = _sorted(found, key=key, reverse=reverse)
    finally:
        written = list.__len__(items) > 0
        list.__setitem__(items, slice(None), found)
    if written:
        raise ValueError("list modified during sort")


def _best(items, key, default, better, name):
    best = best_key = _MISSING
    for item in items:
        item_key = item if key is None else key(item)
        if best is _MISSING or better(item_key, best_key):
            best, best_key = item, item_key
    if best is not _MISSING:
        return best
    if default is not _MISSING:
        return default
    raise ValueError(f"{name}() arg is an empty sequence" if _OLD else f"{name}() iterable argument is empty")


def _max(first, /, *rest, key=None, default=_MISSING):
    return _best((first, *rest) if rest else first, key, default, lambda a, b: a > b, "max")


def _min(first, /, *rest, key=None, default=_MISSING):
    return _best((first, *rest) if rest else first, key, default, lambda a, b: a < b, "min")


def _count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


def _reduce(function, iterable, /, *initial):
    items = iter(iterable)
    value = initial[0] if initial else _MISSING
    for item in items:
        value = item if value is _MISSING else function(value, item)
    if value is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    return value


def _next_map(function, iterators):
    return function(*[next(iterator) for iterator in iterators])


def _next_filter(function, iterator):
    for item in iterator:
        if item if function is None or function is bool else function(item):
            return item
    raise StopIteration


def _reversed(sequence, length):
    for index in range(length - 1, -1, -1):
        try:
            item = sequence[index]
        except (IndexError, StopIteration):
            return
        yield item


def _reduced(described):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return described.__reduce__()


def _with_state(iterator, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        iterator.__setstate__(state)
    return iterator


def _default_of_key(mapping, key, factory):
    """What a defaultdict does for a key that it does not have, whose factory is Python's."""
    mapping[key] = value = factory()
    return value


#: By their names in observe/calls/cfunctions.def.
NATIVES = {
    "default of a key": _default_of_key,
    "next map": _next_map,
    "next filter": _next_filter,
    "reversed": _reversed,
    "reduce": _reduced,
    "set state": _with_state,
    "builtins.any": _any,
    "builtins.all": _all,
    "builtins.sum": _sum,
    "builtins.max": _max,
    "builtins.min": _min,
    "builtins.sorted": _sorted,
    "list": _gathered,
    "tuple": _tuple,
    "tuple.__new__": _new_tuple,
    "set": _set,
    "frozenset": _frozenset,
    "collections.deque": _deque,
    "dict": _with_pairs(dict, 0),
    "dict.__init__": _with_pairs(dict.__init__, 1),
    "dict.update": _with_pairs(dict.update, 1),
    "collections.OrderedDict": _with_pairs(collections.OrderedDict, 0),
    "collections.OrderedDict.__init__": _with_pairs(collections.OrderedDict.__init__, 1),
    "collections.OrderedDict.update": _with_pairs(collections.OrderedDict.update, 1),
    "collections.defaultdict": _with_pairs(collections.defaultdict, 1),
    "str.join": _join,
    "list.extend": _extend,
    "list.sort": _sort,
    "set.update": _update,
    "_collections._count_elements": _count_elements,
    "_functools.reduce": _reduce,
}
