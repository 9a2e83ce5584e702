"""Exceptions torchbolt raises, under the names users of torch.compile know."""


class TorchboltError(RuntimeError):
    """Base of everything torchbolt raises itself."""


class InternalError(TorchboltError):
    """The compiler failed, where a failure is not to fall back to eager (strict mode, suppress_errors=False)."""


class GraphBreak(TorchboltError):
    """A region ended although fullgraph=True asked for one: says where, why, and what to do."""


class RecompileError(TorchboltError):
    """Nothing compiled fits this call, and the stance or the configuration forbids compiling again."""


class FailOnRecompileLimitHit(TorchboltError):
    """The recompile limit was reached where that is an error (fullgraph, fail_on_recompile_limit_hit)."""


class ConstraintViolationError(TorchboltError):
    """A size marked with mark_dynamic has to be a number: names the line that forced it."""


class InvalidBackend(TorchboltError):
    """No backend of that name is registered."""


class BackendCompilerFailed(TorchboltError):
    """A custom backend raised; the exception is the cause, and `inner_exception`."""

    def __init__(self, backend: str, inner_exception: Exception):
        self.backend_name = backend
        self.inner_exception = inner_exception
        super().__init__(f"backend={backend!r} raised:\n{type(inner_exception).__name__}: {inner_exception}")


class UserError(TorchboltError):
    """A control of torchbolt is used in a way that cannot be meant."""


# torch's names for the same.
TorchDynamoException = TorchboltError
InternalTorchDynamoError = InternalError
Unsupported = GraphBreak
RecompileLimitExceeded = FailOnRecompileLimitHit
