# torchbolt/arguments.py
"""Arguments of compile() -> Options; or an ArgumentError that says which argument is wrong, and what it may be.

A backend of the user's gets the mode and the options that torch.compile would give it; ours are checked against the
tables of options.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchbolt import backends, config, exc
from torchbolt.options import (
    BUDGET,
    EMULATE,
    MODES,
    NUMERICS,
    OPTIONS,
    Options,
    list_mode_options,
    memory_budget,
    rounds_as_eager,
    suggest,
    with_defaults,
)


def _merged(mode, options) -> dict[str, object]:
    """The options, each known and of its type, with those of the mode."""
    merged = list_mode_options(mode)
    for given, value in options.items():
        key = given.replace("-", "_") if isinstance(given, str) else given
        if key not in OPTIONS:
            raise exc.ArgumentError(f"torchbolt.compile: unknown option {given!r}." + suggest(key, OPTIONS))
        wanted = OPTIONS[key].type
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise exc.ArgumentError(
                f"torchbolt.compile: option {given!r} must be {getattr(wanted, '__name__', wanted)}, "
                f"not {type(value).__name__}"
            )
        if merged.setdefault(key, value) != value:
            raise exc.ArgumentError(
                f"torchbolt.compile: mode {mode!r} sets {key!r} to {merged[key]!r}, options to {value!r}; leave out one"
            )
    return merged


def _for_backend(backend, mode, options):
    """The backend with the mode and the options that are its own, and what is left for us: how we record."""
    known = [key for key in options if key in OPTIONS]
    ours = {key: options.pop(key) for key in known if not (OPTIONS[key].is_accepted or OPTIONS[key].of_backend)}
    arguments = {} if mode == "default" else {"mode": mode}
    if options:
        arguments["options"] = options
    return backends.Configured(backend, **arguments) if arguments else backend, "default", ours


def _must(argument, wanted, value):
    return exc.ArgumentError(f"torchbolt.compile: {argument} must be {wanted}, not {value!r}")


def check(*, fullgraph, dynamic, backend, mode, options, background, recompile_limit, name, disable=False) -> Options:
    """The arguments as Options; ArgumentError that names what is wrong. 0, 1 and None pass for False and True."""
    for argument, value in (("fullgraph", fullgraph), ("background", background), ("disable", disable)):
        if not isinstance(value, int | None):
            raise _must(argument, "True or False", value)
    if not isinstance(dynamic, int | None):
        raise _must("dynamic", "None, True or False", dynamic)
    if not isinstance(name, str | None):
        raise _must("name", "a text", name)
    if not isinstance(options, Mapping | None):
        raise _must("options", "a dict of names and their values", options)
    if not isinstance(mode, str | None):
        raise _must("mode", f"one of {', '.join(MODES)}", mode)
    backend, mode, options = backends.check(backend), mode or "default", dict(options or {})
    if callable(backend):
        backend, mode, options = _for_backend(backend, mode, options)
    if mode not in MODES:
        raise exc.ArgumentError(f"torchbolt.compile: unknown mode {mode!r}." + suggest(mode, MODES))
    merged = _merged(mode, options)
    if not callable(backend):
        merged = with_defaults(merged)
    background = merged.pop("background", background)
    if not (merged.get("guard_filter_fn") is None or callable(merged["guard_filter_fn"])):
        raise _must("guard_filter_fn", "callable", merged["guard_filter_fn"])
    if merged.get(BUDGET) is None and config.activation_memory_budget is not None:
        merged[BUDGET] = config.activation_memory_budget  # among the options: programs made for another are others
    memory_budget(merged.get(BUDGET))
    asked = rounds_as_eager(merged.pop(NUMERICS, None), merged.pop(EMULATE, None))
    if asked is not None or config.numerics == "eager":
        merged[NUMERICS] = "fast" if asked is False else "eager"
    if recompile_limit is None:
        recompile_limit = merged.pop("recompile_limit", None)
    if not isinstance(recompile_limit, int | None) or (recompile_limit or 0) < 0:
        raise _must("recompile_limit", "a whole number, 0 or above", recompile_limit)
    return Options(
        bool(fullgraph),
        None if dynamic is None else bool(dynamic),
        backend,
        bool(background),
        mode,
        recompile_limit,
        name or "",
        tuple(sorted(merged.items(), key=lambda item: item[0])),
    )
