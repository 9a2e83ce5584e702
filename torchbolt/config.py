# torchbolt/config.py
"""Settings of the process, under the names users of torch._dynamo.config know: torchbolt.config.recompile_limit = 16.

Attribute access reads and writes; `config.patch(name=value, ...)` holds within a `with` block or a decorated function.
Names are checked: an unknown one is an error that says which is nearest. `describe()` tells what each is good for; a
setting without effect says why it has none.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from typing import NamedTuple

from torchbolt import _C, torch_names
from torchbolt.options import BUDGET, NUMERICS, memory_budget, rounds_as_eager, suggest


class _Setting(NamedTuple):
    default: object
    meaning: str
    native: bool = False  # C++ reads it (session/settings.h)
    env: tuple[str, ...] = ()  # variables that give the default: 1 or 0; "not NAME": 0 or 1
    alias: str = ""
    kind: type | None = None  # where the default, None, does not show it
    is_used: bool = True


_TABLE: dict[str, _Setting] = {
    "recompile_limit": _Setting(8, "programs for one place in the code; then calls that fit none run eagerly", True),
    "cache_size_limit": _Setting(8, "older name of recompile_limit", alias="recompile_limit"),
    "accumulated_recompile_limit": _Setting(256, "the same for all places of one compiled callable together", True),
    "accumulated_cache_size_limit": _Setting(256, "older name", alias="accumulated_recompile_limit"),
    "fail_on_recompile_limit_hit": _Setting(False, "the limit raises FailOnRecompileLimitHit", True),
    "error_on_recompile": _Setting(False, "a call that nothing compiled fits raises RecompileError", True),
    "suppress_errors": _Setting(
        None,
        "a failure inside the compiler falls back to eager, which the logger `torchbolt` warns of, and if True one of "
        "a custom backend too; False raises InternalError",
        True,
        env=("TORCHDYNAMO_SUPPRESS_ERRORS",),
        kind=bool,
    ),
    "disable": _Setting(
        False,
        "compiled callables run eagerly",
        True,
        env=("TORCHBOLT_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"),
    ),
    "verbose": _Setting(
        False, "region ends, recompilations and performance hints are logged", env=("TORCHDYNAMO_VERBOSE",)
    ),
    "log_file_name": _Setting(None, "logs are written to this file"),
    "force_disable_caches": _Setting(
        False,
        "the disk cache is neither read nor written",
        env=(
            "TORCH_COMPILE_FORCE_DISABLE_CACHES",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
            "not TORCHINDUCTOR_FX_GRAPH_CACHE",
        ),
    ),
    "dynamic_shapes": _Setting(True, "False: sizes never become symbols, as with dynamic=False", True),
    "assume_static_by_default": _Setting(True, "False: sizes are symbols from the start, as with dynamic=True", True),
    "allow_ignore_mark_dynamic": _Setting(
        False, "a size marked with mark_dynamic may become a number, as with maybe_mark_dynamic", True
    ),
    "automatic_dynamic_shapes": _Setting(
        True, "a size that changed becomes a symbol", True, env=("TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES",)
    ),
    BUDGET: _Setting(
        None,
        "how much regions compiled from now on may keep for their backward pass: a share from 0 to 1, or bytes "
        '("2GB"); of callables without an option of that name',
        True,
    ),
    NUMERICS: _Setting(
        "fast",
        '"eager": regions compiled from now on round what an operator gives in bfloat16 or float16 before another one '
        "reads it, as eager does; of callables without an option of that name. TORCHBOLT_NUMERICS=eager and "
        "TORCHINDUCTOR_EMULATE_PRECISION_CASTS=1 say so from the start",
        True,
    ),
    "delay_logging": _Setting(
        True,
        "print, warnings.warn and loggers do not end a region: they are called at its end, in order, with what they "
        "were given; False: they end it",
        True,
    ),
    "reorderable_logging_functions": _Setting(
        frozenset(), "more functions that only show something and may be delayed in the same way"
    ),
}
_TABLE.update(
    (name, _Setting(default, f"accepted; has no effect: {reason}", is_used=False))
    for reason, rows in torch_names.SETTINGS.items()
    for name, default in rows.items()
)


def _from_environment(setting: _Setting):
    for name in setting.env:
        variable = name.removeprefix("not ")
        if (text := os.environ.get(variable, "")) in ("0", "1"):
            return (text == "1") == (variable == name)
    return setting.default


def describe() -> dict[str, str]:
    """What each setting is good for, or why it has no effect."""
    return {name: setting.meaning for name, setting in _TABLE.items()}


def _number(name, value) -> int | float:
    """A setting as C++ has it."""
    if name == BUDGET:
        return memory_budget(value)
    if name == NUMERICS:
        return int(bool(rounds_as_eager(value)))
    return -1 if value is None else int(value)


class _Config(types.ModuleType):
    """This module as an object whose attributes are the settings."""

    def __getattr__(self, name):  # settings live in _values; what is left is unknown
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        if name in _TABLE:
            return values[_TABLE[name].alias]
        raise AttributeError(f"torchbolt.config has no setting {name!r}." + suggest(name, _TABLE))

    def __setattr__(self, name, value):
        if name.startswith("__"):
            return super().__setattr__(name, value)
        if name not in _TABLE:
            raise AttributeError(f"torchbolt.config has no setting {name!r}." + suggest(name, _TABLE))
        name = _TABLE[name].alias or name
        wanted = _TABLE[name].kind or type(_TABLE[name].default)
        fits = isinstance(value, int) and (wanted is bool or not isinstance(value, bool))
        if _TABLE[name].is_used and wanted in (bool, int) and not fits and value is not _TABLE[name].default:
            raise TypeError(f"torchbolt.config.{name} must be {wanted.__name__}, not {value!r}")
        if _TABLE[name].native:
            _C._configure(name, _number(name, value))
        _apply(name, value)
        self._values[name] = value

    def __dir__(self):
        return [*super().__dir__(), *_TABLE]


# What the environment said before a setting took it over.
_before: dict[str, str | None] = {}


def _environment(name: str, value: str | None) -> None:
    """Sets a variable that C++ reads at each use; None gives back what was there."""
    before = _before.setdefault(name, os.environ.get(name))
    value = before if value is None else value
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _apply(name, value) -> None:
    if name == "verbose":
        asked = os.environ.get("TORCHBOLT_LOGS", "")
        _C._set_logs(",".join(filter(None, [asked, "graph_breaks,recompiles,perf_hints"])) if value else "")
    elif name == "reorderable_logging_functions":
        for function in _values.get(name, ()):
            _C._mark(function, "shows not", None)
        for function in value:
            _C._mark(function, "shows", None)
    elif name == "log_file_name":
        _environment("TORCHBOLT_LOGS_OUT", value)
    elif name == "force_disable_caches":
        _environment("TORCHBOLT_CACHE", "0" if value else None)


class patch(contextlib.ContextDecorator):
    """patch(recompile_limit=2), patch("recompile_limit", 2), patch({"recompile_limit": 2}): set for a while."""

    def __init__(self, names=None, value=None, /, **settings):
        if isinstance(names, str):
            settings[names] = value
        elif names is not None:
            settings = {**names, **settings}
        for name in settings:
            if name not in _TABLE:
                raise AttributeError(f"torchbolt.config has no setting {name!r}." + suggest(name, _TABLE))
        self._settings = settings
        self._outer: list[dict] = []  # one for each entry: a decorated function may call itself

    def __enter__(self):
        config = sys.modules[__name__]
        self._outer.append({name: getattr(config, name) for name in self._settings})
        for name, value in self._settings.items():
            setattr(config, name, value)
        return self

    def __exit__(self, *_):
        for name, value in self._outer.pop().items():
            setattr(sys.modules[__name__], name, value)


def to_dict() -> dict[str, object]:
    """All settings as they are now."""
    return dict(_values)


shallow_copy_dict = get_config_copy = to_dict


def load_config(settings: dict[str, object]) -> None:
    """Sets all of `settings`."""
    for name, value in settings.items():
        setattr(sys.modules[__name__], name, value)


def follow(name: str, value, torchs_default) -> None:
    """Sets what torch's setting of this name was set to, where ours has an effect; torch's default is our default."""
    setting = _TABLE.get(name)
    if setting is not None and setting.is_used:
        usual = _initial[setting.alias or name]
        setattr(sys.modules[__name__], name, usual if value == torchs_default else value)


def reset() -> None:
    """Every setting as it was when torchbolt was imported."""
    load_config(_initial)


_values = {name: _from_environment(s) for name, s in _TABLE.items() if not s.alias}
_values[NUMERICS] = os.environ.get("TORCHBOLT_NUMERICS") or (
    "eager" if os.environ.get("TORCHINDUCTOR_EMULATE_PRECISION_CASTS") == "1" else "fast"
)
_initial = dict(_values)
for _name, _value in _values.items():
    if _TABLE[_name].native:
        _C._configure(_name, _number(_name, _value))
for _name in ("verbose", "force_disable_caches"):
    if _values[_name]:
        _apply(_name, True)
sys.modules[__name__].__class__ = _Config
