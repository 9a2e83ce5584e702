# torchbolt/exc.py
"""Exceptions torchbolt raises, under the names users of torch.compile know."""

import enum
import sys


class _WithoutTorchs(RuntimeError):
    """In the place of torch's TorchDynamoException until that is there."""


class TorchboltError(_WithoutTorchs):
    """Base of everything torchbolt raises itself.

    Where torch._dynamo.exc is loaded when one is raised, each is torch's exception for the same, too.
    """

    __reduce__ = RuntimeError.__reduce__

    def __init__(self, *args):
        if TorchboltError.__bases__ == (_WithoutTorchs,):
            _derive_from_torchs()
        RuntimeError.__init__(self, *args)  # torch's take arguments of their own
        self.msg = str(self)  # as torch's have it


class InternalError(TorchboltError):
    """The compiler failed, where a failure is not to fall back to eager (strict mode, suppress_errors=False)."""


class ArgumentError(TorchboltError, ValueError, TypeError):
    """An argument is none that the function takes: torch raises a RuntimeError there."""


class DuplicateBackend(ArgumentError, AssertionError):
    """A backend of that name is there already."""


class GraphBreak(TorchboltError):
    """A region ended although fullgraph=True asked for one: says where, why, and what to do."""


class RecompileError(TorchboltError):
    """Nothing compiled fits this call, and the stance or the configuration forbids compiling again."""


class FailOnRecompileLimitHit(TorchboltError):
    """The recompile limit was reached where that is an error (fullgraph, fail_on_recompile_limit_hit)."""


class ConstraintViolationError(TorchboltError):
    """A size marked with mark_dynamic has to be a number: names the line that forced it."""


class ArtifactError(TorchboltError, ValueError):
    """An artifact that cannot be made or must not be taken over; the message says why and what to do."""


class InvalidBackend(TorchboltError):
    """No backend of that name is registered."""


class BackendCompilerFailed(TorchboltError):
    """A custom backend raised; the exception is the cause, and `inner_exception`."""

    def __init__(self, backend: str, inner_exception: Exception):
        self.backend_name = backend
        self.inner_exception = inner_exception
        super().__init__(f"backend={backend!r} raised:\n{type(inner_exception).__name__}: {inner_exception}")

    def __reduce__(self):
        return type(self), (self.backend_name, self.inner_exception)


class UserError(TorchboltError):
    """A control of torchbolt is used in a way that cannot be meant."""


# torch's names for the same.
TorchDynamoException = TorchboltError
InternalTorchDynamoError = InternalError
Unsupported = GraphBreak
RecompileLimitExceeded = FailOnRecompileLimitHit


#: Ours and torch's for the same, where except clauses may name either.
_TORCHS = {
    GraphBreak: "Unsupported",
    InternalError: "InternalTorchDynamoError",
    RecompileError: "RecompileError",
    FailOnRecompileLimitHit: "FailOnRecompileLimitHit",
    InvalidBackend: "InvalidBackend",
    BackendCompilerFailed: "BackendCompilerFailed",
    UserError: "UserError",
}


def _derive_from_torchs() -> None:
    torchs = sys.modules.get("torch._dynamo.exc")
    wanted = {ours: getattr(torchs, name, None) for ours, name in _TORCHS.items()}
    if None in wanted.values():  # not loaded, or not to the end
        return
    TorchboltError.__bases__ = (torchs.TorchDynamoException,)
    for ours, theirs in wanted.items():
        ours.__bases__ = (*ours.__bases__, theirs)


# Torch's alone: nothing here raises them, and `except` clauses may name them.
class ResetRequired(TorchboltError):
    """In torch: the compiler is to be reset before it is used so."""


class TorchRuntimeError(TorchboltError):
    """In torch: an operator raises while it is traced. Here it raises its own error, as in eager."""


class UncapturedHigherOrderOpError(TorchboltError):
    """In torch: a higher-order operator cannot be captured. Here they are ordinary code."""


class CondOpArgsMismatchError(TorchboltError):
    """In torch: the branches of cond do not fit together."""


class SkipFrame(TorchboltError):
    """In torch: a function is not worth compiling."""


class ObservedException(TorchboltError):
    """In torch: what the traced program raised. Here it raises just that."""


class StepUnsupported(TorchboltError):
    """In torch: the rest of a function runs eagerly."""


class PackageError(TorchboltError):
    """In torch: saved programs cannot be loaded."""


class UserErrorType(enum.Enum):
    """In torch: what a UserError is about."""

    DYNAMIC_CONTROL_FLOW = enum.auto()
    ANTI_PATTERN = enum.auto()
    STANDARD_LIBRARY = enum.auto()
    CONSTRAINT_VIOLATION = enum.auto()
    DYNAMIC_DIM = enum.auto()
    INVALID_INPUT = enum.auto()
    INVALID_OUTPUT = enum.auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = enum.auto()
