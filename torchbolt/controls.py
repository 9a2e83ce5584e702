"""What users say about compilation from inside and around their code: disable, graph_break, stances.

The marks torch.compile's users already carry (torch.compiler.disable, torch._dynamo.disable and graph_break,
torch.compiler.is_compiling) mean the same here, without those modules being imported.
"""

from __future__ import annotations

import functools
import inspect

from torchbolt import _C

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")


def disable(fn=None, recursive: bool = True, *, reason: str | None = None):
    """`fn` is never compiled: a region that calls it ends there, and begins again after it.

    recursive=False: only its own code is not; functions that it calls and that were compiled by themselves are.
    """
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    if isinstance(fn, _C.Compiled):
        fn = fn.__wrapped__
    if inspect.isclass(fn) or not callable(fn):
        raise TypeError(f"torchbolt.disable: {fn!r} is not a function")

    @functools.wraps(fn)
    def disabled(*args, **kwargs):
        if not recursive:
            return fn(*args, **kwargs)
        with set_stance("force_eager"):
            return fn(*args, **kwargs)

    disabled._torchbolt_disable = reason or True
    return disabled


def graph_break(msg: str = "") -> None:
    """The region ends here, and the next one begins after it. Does nothing outside of one."""


def is_compiling() -> bool:
    """True while a call is being recorded."""
    return False


class set_stance:
    """How compiled callables of this thread behave from now on, or within a `with` block or a decorated function.

    default: record, compile, run. force_eager: run eagerly. eager_on_recompile: where nothing compiled fits, run
    eagerly. fail_on_recompile: where nothing compiled fits although something was compiled, raise RecompileError.
    """

    def __init__(self, stance: str = "default"):
        if stance not in STANCES:
            raise ValueError(f"torchbolt.set_stance: unknown stance {stance!r}. Known: {', '.join(STANCES)}.")
        self._stance = stance
        self._before = _C._set_stance(STANCES.index(stance))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _C._set_stance(self._before)

    def __call__(self, fn):
        _C._set_stance(self._before)  # as a decorator it holds during calls only
        stance = self._stance

        @functools.wraps(fn)
        def within(*args, **kwargs):
            with set_stance(stance):
                return fn(*args, **kwargs)

        return within
