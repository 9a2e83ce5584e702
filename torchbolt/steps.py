"""Generator functions and coroutine functions, compiled.

A call of one only makes its object; what there is to compile runs between one yield (or await) and the next. So each of
these stretches is a call of a compiled function, which goes on with the body in its own loop and ends where the body
yields. Callers get generators and coroutines of Python's own, which hand everything on.

Left as they are: asynchronous generators.
"""

from __future__ import annotations

import functools
import inspect
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


def runs_in_steps(fn) -> bool:
    """Whether calls of `fn` give what `in_steps` can compile."""
    marked = inspect.CO_ITERABLE_COROUTINE  # by types.coroutine
    if not isinstance(fn, types.FunctionType) or fn.__code__.co_flags & marked:
        return False
    return inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn)


def _with_arguments_of(fn, awaited, body):
    """A generator function or coroutine function that hands its arguments to `body`, and on what that yields.

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
    while free in names:
        free += "_"
    begin, go_on = ("async def", "await") if awaited else ("def", "yield from")
    made = {free: body}
    exec(f"{begin} begin({', '.join(taken)}):\n    return ({go_on} {free}({given}))", made)
    begin = functools.wraps(fn)(made["begin"])
    begin.__defaults__, begin.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    return begin


def in_steps(fn, compiled):
    """`fn` with its stretches compiled; `compiled` compiles a function."""
    sent, thrown = compiled(_sent), compiled(_thrown)
    awaited = inspect.iscoroutinefunction(fn)

    def body(*args, **kwargs):
        steps = _handed_on(fn(*args, **kwargs), sent, thrown)
        return _Awaited(steps) if awaited else steps

    begin = _with_arguments_of(fn, awaited, body)
    begin._torchbolt_step = sent
    return begin
