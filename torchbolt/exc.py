"""Exceptions torchbolt raises, under the names users of torch.compile know."""


class TorchboltError(RuntimeError):
    """Base of everything torchbolt raises itself."""


class GraphBreak(TorchboltError):
    """A region ended although fullgraph=True asked for one: says where, why, and what to do."""


Unsupported = GraphBreak


class RecompileError(TorchboltError):
    """Nothing compiled fits this call, and the stance in force forbids compiling again."""


class ConstraintViolationError(TorchboltError):
    """A size marked with mark_dynamic has to be a number: names the line that forced it."""


class BackendCompilerFailed(TorchboltError):
    """A custom backend raised."""


class InvalidBackend(TorchboltError):
    """No backend of that name is registered."""


class FailOnRecompileLimitHit(TorchboltError):
    """The recompile limit was reached where that is an error."""
