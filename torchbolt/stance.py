# torchbolt/stance.py
"""set_stance(): how compiled callables behave where nothing compiled fits a call, or at all (session/stance.h)."""

from __future__ import annotations

import functools

from torchbolt import _C, backends, exc
from torchbolt.controls import STANCES

_FORCE_BACKEND = 5  # session/stance.h's, which set_stance(force_backend=) means
_forced: list = [None]


def forced_backend():
    """Of set_stance(force_backend=...), as backends.check gives it."""
    return _forced[0]


class set_stance:
    """How compiled callables behave, in all threads, from now on, or within a `with` block or a decorated function.

    default: record, compile, run. force_eager: run eagerly. eager_on_recompile: where nothing compiled fits, run
    eagerly. fail_on_recompile: where nothing compiled fits, raise RecompileError. eager_then_compile,
    aot_eager_then_compile: the first call of each callable runs eagerly.

    force_backend: with "default", everything is compiled for this backend. skip_guard_eval_unsafe: accepted; guards are
    always checked, which takes microseconds.
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend=None):
        if stance not in STANCES:
            raise exc.ArgumentError(f"torchbolt.set_stance: unknown stance {stance!r}. Known: {', '.join(STANCES)}.")
        if force_backend is not None and stance != "default":
            raise RuntimeError(f"torchbolt.set_stance: force_backend goes with 'default', not with {stance!r}")
        self._arguments = (stance, skip_guard_eval_unsafe, force_backend)
        self._backend = None if force_backend is None else backends.check(force_backend)
        self._number = STANCES[stance] if self._backend is None else _FORCE_BACKEND
        self._before = [self._set(self._number, self._backend)]  # a stack: objects are used again, and in themselves
        self._is_set = True  # already, for the first use

    @staticmethod
    def _set(number, backend):
        before = (_C._set_stance(number), forced_backend())
        _forced[0] = backend
        return before

    def __enter__(self):
        if not self._is_set:
            self._before.append(self._set(self._number, self._backend))
        self._is_set = False
        return self

    def __exit__(self, *_):
        self._set(*self._before.pop())

    def __call__(self, fn):
        if self._is_set:  # as a decorator it holds during calls only
            self.__exit__()
        self._is_set = False
        stance, skip, backend = self._arguments

        @functools.wraps(fn)
        def within(*args, **kwargs):
            with set_stance(stance, skip_guard_eval_unsafe=skip, force_backend=backend):
                return fn(*args, **kwargs)

        return within
