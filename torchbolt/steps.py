# torchbolt/steps.py
"""Generator functions and coroutine functions, asynchronous generators among them, compiled.

A call of one only makes its object; what there is to compile runs between one yield (or await) and the next. So each of
these stretches is a call of a compiled function, which goes on with the body in its own loop and ends where the body
yields. Callers get generators and coroutines of Python's own, which hand everything on.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types


def _sent(made, value):
    """Whether the body is over, and what it yielded or returned."""
    try:
        return False, made.send(value)
    except StopIteration as end:
        return True, end.value


def _thrown(made, error):
    try:
        return False, made.throw(error)
    except StopIteration as end:
        return True, end.value


_END = object()


# A call that raises is recorded anew each time, and an asynchronous generator's last step always does.
def _asked(awaitable, value):
    try:
        return _sent(awaitable, value)
    except StopAsyncIteration:
        return True, _END


def _interrupted(awaitable, error):
    try:
        return _thrown(awaitable, error)
    except StopAsyncIteration:
        return True, _END


def _handed_on(made, sent, thrown):
    """What the body `made` yields, and to it what comes back: `yield from`, step by step."""
    go_on, value = sent, None
    while True:
        over, given = go_on(made, value)
        if over:
            return given
        try:
            value = yield given
            go_on = sent
        except GeneratorExit:
            made.close()
            raise
        except BaseException as error:
            go_on, value = thrown, error


class _Awaited:
    __slots__ = ("steps",)

    def __init__(self, steps):
        self.steps = steps

    def __await__(self):
        return self.steps


class _Items:
    """What the body `made` of an asynchronous generator yields, and to it what comes back."""

    __slots__ = ("asked", "item", "made", "sent", "thrown")

    def __init__(self, made, sent, thrown):
        self.made, self.sent, self.thrown = made, sent, thrown
        # Hooks are told of the generator that the caller has, and of no other.
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            self.asked = made.__anext__()
        finally:
            sys.set_asyncgen_hooks(*hooks)

    async def has_another(self):
        self.item = await _Awaited(_handed_on(self.asked, self.sent, self.thrown))
        return self.item is not _END

    def taken(self):
        item = self.item
        del self.item
        return item

    def send(self, value):
        self.asked = self.made.asend(value)

    def throw(self, error):
        self.asked = self.made.athrow(error)


# {body} and what begins with it are names that no parameter has. This is how an asynchronous generator hands on what
# another one yields.
_HANDS_ON_ITEMS = """
async def begin({taken}):
    {body}_items = {body}({given})
    while True:
        if not await {body}_items.has_another():
            return
        try:
            {body}_items.send((yield {body}_items.taken()))
        except BaseException as {body}_error:
            {body}_items.throw({body}_error)
"""
_AWAITS = """
async def begin({taken}):
    return (await {body}({given}))
"""
_YIELDS_FROM = """
def begin({taken}):
    return (yield from {body}({given}))
"""


def runs_in_steps(fn) -> bool:
    """Whether calls of `fn` give what `in_steps` can compile."""
    marked = inspect.CO_ITERABLE_COROUTINE  # by types.coroutine
    if not isinstance(fn, types.FunctionType) or fn.__code__.co_flags & marked:
        return False
    return inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)


def _with_arguments_of(fn, text, body):
    """The function of `text`, which hands its arguments to `body`, and on what that yields.

    Its parameters are those of `fn`: so CPython refuses wrong arguments where it is called, not where the body begins.
    """
    code = fn.__code__
    by_position, by_name = code.co_argcount, code.co_kwonlyargcount
    rest = bool(code.co_flags & inspect.CO_VARARGS)
    names = code.co_varnames[: by_position + by_name + rest + bool(code.co_flags & inspect.CO_VARKEYWORDS)]
    positions, keywords = list(names[:by_position]), list(names[by_position : by_position + by_name])
    extra = list(names[by_position + by_name :])
    stars = ["*" + extra.pop(0)] if rest else []
    more = ["**" + name for name in extra]
    taken = [*positions, *(stars or ["*"] * bool(keywords)), *keywords, *more]
    if code.co_posonlyargcount:
        taken.insert(code.co_posonlyargcount, "/")
    given = ", ".join([*positions, *stars, *(f"{name}={name}" for name in keywords), *more])
    free = "_body"
    while any(name.startswith(free) for name in names):
        free += "_"
    made = {free: body}
    exec(text.format(body=free, taken=", ".join(taken), given=given), made)
    begin = functools.wraps(fn)(made["begin"])
    begin.__defaults__, begin.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    return begin


def in_steps(fn, compiled):
    """`fn` with its stretches compiled; `compiled` compiles a function."""
    items = inspect.isasyncgenfunction(fn)
    sent, thrown = compiled(_asked if items else _sent), compiled(_interrupted if items else _thrown)
    if items:
        text, kind = _HANDS_ON_ITEMS, _Items
    elif inspect.iscoroutinefunction(fn):
        text, kind = _AWAITS, lambda made, *steps: _Awaited(_handed_on(made, *steps))
    else:
        text, kind = _YIELDS_FROM, _handed_on

    begin = _with_arguments_of(fn, text, lambda *args, **kwargs: kind(fn(*args, **kwargs), sent, thrown))
    begin._torchbolt_step = sent
    return begin
