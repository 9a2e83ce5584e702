# torchbolt/install.py
"""install(): torch.compile means torchbolt, for programs that are not to be changed."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings

import torch

from torchbolt import accepted, api, backends, config, controls, logs, options, stance, torch_names

# Of torch.compiler, by name.
_OURS = {
    function.__name__: function
    for function in (
        api.compile,
        api.reset,
        backends.get_default_backend,
        backends.list_backends,
        backends.set_default_backend,
        controls.allow_in_graph,
        controls.assume_constant_result,
        controls.disable,
        controls.nested_compile_region,
        controls.substitute_in_graph,
        stance.set_stance,
        accepted.cudagraph_mark_step_begin,
        accepted.load_cache_artifacts,
        accepted.save_cache_artifacts,
        accepted.set_enable_guard_collectives,
    )
}
_original: dict[tuple, object] = {}


def _replace(owner, name: str, function) -> None:
    if hasattr(owner, name):
        _original.setdefault((owner, name), getattr(owner, name))
        setattr(owner, name, function)


def _follow(torchs, into=config.follow) -> None:
    """What is set in one of torch's tables of settings holds for ours, where we have it; its default is our default."""
    set_torchs = type(torchs).__setattr__

    def follow(name, value):
        try:
            into(name, value, torchs._config[name].default)
        except (TypeError, ValueError, OverflowError):
            warnings.warn(f"torchbolt: {torchs.__name__}.{name} = {value!r} has no effect", RuntimeWarning, 3)

    def __setattr__(self, name, value):
        set_torchs(self, name, value)
        if name in self._config:  # the table keeps books of its own in attributes, too
            follow(name, value)

    for name in torchs._config:
        if not torchs._is_default(name):
            follow(name, getattr(torchs, name))
    _replace(type(torchs), "__setattr__", __setattr__)


def _take_over(dynamo) -> None:
    """torch._dynamo, which the program has loaded."""
    reset = dynamo.reset

    def reset_both():
        reset()
        api.reset()

    _replace(dynamo, "reset", reset_both)
    _replace(dynamo, "explain", importlib.import_module("torchbolt.explanation").explain)
    for function in (_optimize, _optimize_assert, _run, backends.list_backends, stance.set_stance):
        _replace(dynamo, function.__name__.lstrip("_"), function)
    for owner in (dynamo, dynamo.callback):
        for name in ("on_compile_start", "on_compile_end"):
            _replace(owner, name, _with_a_warning(getattr(owner, name), torch_names.FUNCTIONS[name]))
    _replace(dynamo.utils, "compile_times", _compile_times)
    _follow(dynamo.config)


def _optimize(backend=None, *, nopython=False, guard_filter_fn=None, **arguments):
    """torch._dynamo.optimize: compile() as it was called before there was torch.compile."""
    for hook in ("guard_export_fn", "guard_fail_fn", "error_on_graph_break", "package"):
        arguments.pop(hook, None)
    if guard_filter_fn is not None:
        arguments["options"] = {"guard_filter_fn": guard_filter_fn}
    return api.compile(backend=backend, fullgraph=nopython, **arguments)


def _optimize_assert(backend=None, **arguments):
    return _optimize(backend, **arguments | {"nopython": True})


def _run(fn=None):
    """torch._dynamo.run: only what was compiled before, and eager for the rest."""
    return _run if fn is None else stance.set_stance("eager_on_recompile")(fn)


def _compile_times(repr="str", aggregate=False):
    """torch._dynamo.utils.compile_times: of torchbolt."""
    counted = api.stats()
    rows = [("recordings", counted["recordings"]), ("compile_seconds", counted["compile_seconds"])]
    if repr == "csv":
        return [name for name, _ in rows], [value for _, value in rows]
    return "torchbolt.stats():\n" + "\n".join(f"{name}: {value}" for name, value in rows)


def _with_a_warning(function, instead: str):
    """It does what it did, which is nothing for what torchbolt compiles."""

    @functools.wraps(function)
    def told(*args, **kwargs):
        warnings.warn(f"torchbolt calls nothing when it compiles: {instead}", RuntimeWarning, 2)
        return function(*args, **kwargs)

    return told


def _take_over_logs() -> None:
    theirs = torch._logging.set_logs

    @functools.wraps(theirs)
    def set_logs(**levels):
        theirs(**levels)
        logs.follow(**levels)

    _replace(torch._logging, "set_logs", set_logs)


# Modules that a program may load, and we never do; and what is done with them then.
_LATER = {
    "torch._dynamo": _take_over,
    "torch._functorch.config": _follow,
    "torch._inductor.config": functools.partial(_follow, into=options.follow),
}


class _UntilLoaded(importlib.abc.MetaPathFinder):
    """Stands in sys.meta_path until a program loads a module of _LATER."""

    def __init__(self, awaited: str):
        self._awaited = awaited

    def find_spec(self, name, path, target=None):
        if name != self._awaited:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            _LATER[name](module)

        spec.loader.exec_module = exec_module
        return spec


def install() -> None:
    """From now on torch.compile is torchbolt.compile, and with it torch.nn.Module.compile and the controls of
    torch.compiler; torch._logging.set_logs() means our logs, too; and so do, where the program loads them,
    torch._dynamo's optimize, run, reset, explain, list_backends, set_stance and config, the memory budget of
    torch._functorch.config, and of torch._inductor.config the defaults of options that have an effect here."""
    if _original:
        return
    _replace(torch, "compile", api.compile)
    for name, function in _OURS.items():
        _replace(torch.compiler, name, function)
    _follow(torch.compiler.config)
    _take_over_logs()
    for name, take_over in _LATER.items():
        if (module := sys.modules.get(name)) is not None:
            take_over(module)
        else:
            sys.meta_path.insert(0, _UntilLoaded(name))


def uninstall() -> None:
    """Takes install() back."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _UntilLoaded)]
    for (owner, name), function in _original.items():
        setattr(owner, name, function)
    _original.clear()
