# tests/end_to_end/test_exceptions_made.py
"""Exceptions that a compiled function makes, raises and keeps: classes, arguments, notes, contexts and tracebacks are those
of eager, at every call, and making them ends no region."""

import traceback

import pytest
import torch

import torchbolt


class Refused(Exception):
    pass


class Counted(Exception):
    def __init__(self, *args):
        super().__init__(*args)
        self.count = len(args)


def kept(make):
    try:
        raise make()
    except BaseException as error:
        return error


def group_of_raised():
    raised = [kept(lambda: Refused("a", 1)), kept(lambda: KeyError("k"))]
    return kept(lambda: ExceptionGroup("two", raised))


def nested():
    try:
        try:
            raise MemoryError("x")
        except MemoryError as error:
            raise BaseExceptionGroup("inner", [error, Counted(1, 2)]) from None
    except BaseExceptionGroup as error:
        inner = error
    return kept(lambda: ExceptionGroup("outer", [inner]))


def in_context():
    try:
        try:
            raise Refused("first")
        except Refused:
            raise Counted("second")  # noqa: B904
    except Counted as error:
        return error


def from_cause():
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise Refused("second") from error
    except Refused as error:
        error.add_note("noted")
        return error


def the_class():
    return kept(lambda: Refused)


def told(error):
    """All that can be seen of an exception."""
    if error is None:
        return None
    lines, entry = [], error.__traceback__
    while entry:
        lines.append((entry.tb_frame.f_code.co_name, entry.tb_lineno, entry.tb_lasti))
        entry = entry.tb_next
    inner = [told(e) for e in getattr(error, "exceptions", ())]
    # Of a group the arguments hold the list it was made of.
    args = error.args if not inner else error.args[:1]
    own = {k: v for k, v in vars(error).items() if not isinstance(v, BaseException)}
    return (
        type(error),
        args,
        own,
        lines,
        told(error.__context__),
        told(error.__cause__),
        error.__suppress_context__,
        inner,
    )


@pytest.mark.parametrize("make", [group_of_raised, nested, in_context, from_cause, the_class], ids=lambda f: f.__name__)
def test_exceptions_that_are_returned(make):
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: (x + 1, make()), fullgraph=True)
    for _ in range(3):
        x = torch.randn(3)
        y, error = compiled(x)
        assert torch.equal(y, x + 1) and told(error) == told(make())
    assert torchbolt.stats()["regions"] == 1


def test_an_exception_from_outside_that_is_raised():
    """Raising writes its traceback and context into it, each time in front of what is there."""

    def fn(x, error):
        try:
            raise KeyError
        except KeyError:
            try:
                raise error
            except Refused as caught:
                return x + len(caught.args)

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    again = {f: Refused(1) for f in (fn, compiled)}
    for _ in range(3):
        fresh = {f: Refused(1, 2) for f in (fn, compiled)}
        for errors in (fresh, again):
            assert torch.equal(compiled(torch.ones(2), errors[compiled]), fn(torch.ones(2), errors[fn]))
            assert told(errors[compiled]) == told(errors[fn])


def test_a_group_of_exceptions_from_outside():
    def fn(x, errors):
        try:
            raise ExceptionGroup("those", errors)
        except* Refused as group:
            x = x + len(group.exceptions)
        except* KeyError:
            x = x * 10
        return x

    torchbolt.reset()
    compiled, x = torchbolt.compile(fn), torch.ones(2)
    for errors in ([Refused(1)], [Refused(1), Refused(2)], [KeyError(1)], [KeyError(1), Refused(1)], [Refused(1)]):
        assert torch.equal(compiled(x, errors), fn(x, errors))


def test_frames_of_a_traceback_that_are_cleared():
    """As unittest's assertRaises does."""

    def fn(x):
        error = kept(lambda: Refused(1))
        traceback.clear_frames(error.__traceback__)
        return x + len(error.args), error

    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    for _ in range(3):
        got, want = compiled(torch.ones(2)), fn(torch.ones(2))
        assert torch.equal(got[0], want[0]) and told(got[1]) == told(want[1])
