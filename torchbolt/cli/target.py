# torchbolt/cli/target.py
"""TARGET and its arguments, as a command line has them -> something to call, and how to compile it.

`package.module:name` and `file.py[:name]` are imported; what they name is compiled as it is, unless it is a function
without parameters that makes a module or a tuple that begins with something to call. Everything else is a name of
transformers or timm (models.py).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from dataclasses import dataclass, field

import torch

from torchbolt import api, exc
from torchbolt.cli import models
from torchbolt.cli.errors import UsageError
from torchbolt.options import OPTIONS

DEMO = "demo"  # a name of ours
_NAMES = ("model", "fn")  # what a file is looked through for
_SPEC = "--input takes [NAME=]SIZES[:DTYPE[:LOW..HIGH]], as in 2x8, ids=2x16:int64:0..100, or a number"


@dataclass
class Target:
    """One call: of what, with what, and how it is to be compiled."""

    name: str
    fn: object
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)  # compile's arguments
    gradients: bool = False
    state: list | None = None  # what state.py puts back

    def call(self, fn=None):
        """Calls `fn`, or the target itself, without gradients unless they are wanted."""
        with contextlib.nullcontext() if self.gradients else torch.no_grad():
            return (fn or self.fn)(*self.args, **self.kwargs)

    def compiled(self):
        """Compiled anew."""
        return api.compile(self.fn, **self.options)


@contextlib.contextmanager
def told(target: Target):
    """What the target raises is told in one line, with the place in its own code."""
    with _told(target.name, "fails"):
        try:
            yield
        except RuntimeError as error:
            if target.gradients or "does not require grad" not in str(error):
                raise
            raise UsageError(
                f"{target.name} needs gradients ({error}), and is called without: give --gradients{_place(error)}"
            ) from error


@contextlib.contextmanager
def _told(name: str, what: str):
    """What the user's code raises, be it a call of the target or not, is told in one line with its place."""
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name} {what}: {type(error).__name__}: {error}{_place(error)}") from error


def _place(error: BaseException) -> str:
    """The innermost line of the traceback that is neither ours nor torch's."""
    if isinstance(error, SyntaxError) and error.filename and error.text:  # its message names the file and the line
        return f": {error.text.strip()}"
    libraries = tuple(os.path.dirname(module.__file__) + os.sep for module in (torch, api))
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if os.path.isfile(f.filename) and not os.path.abspath(f.filename).startswith(libraries)]
    own = [f for f in own if os.path.dirname(f.filename) != os.path.dirname(contextlib.__file__)]
    return f" ({own[-1].filename}:{own[-1].lineno}: {own[-1].line})" if own else ""


def positive(kind: type):
    """For a parser: numbers of that type which are larger than nothing."""

    def read(text: str):
        number = kind(text)
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not larger than 0")
        return number

    read.__name__ = kind.__name__  # which argparse says where the text is no number
    return read


def add_seconds(parser, default: float, of: str) -> None:
    """How long is measured."""
    what = f"of measuring {of} (default: {default:g})"
    parser.add_argument("--seconds", type=positive(float), default=default, help=what)


def arguments(parser, or_demo: bool = False) -> None:
    """What every verb with a TARGET takes. `or_demo`: it may be left out."""
    how = {"nargs": "?", "default": DEMO} if or_demo else {}
    parser.add_argument("target", metavar="TARGET", help="what to call; see below", **how)
    parser.add_argument("--input", action="append", default=[], metavar="SPEC", help=_SPEC.split(" takes ")[1])
    parser.add_argument("--full-size", action="store_true", help="of a configuration: its own sizes, not small ones")
    parser.add_argument("--dtype", help="of weights and floating inputs: float32, bfloat16, float16")
    parser.add_argument("--device", help="where to run: cpu, cuda; default: where the target is")
    parser.add_argument("--threads", type=positive(int), help="torch.set_num_threads")
    parser.add_argument("--gradients", action="store_true", help="leave grad mode on")
    compiling = parser.add_argument_group("how to compile")
    compiling.add_argument("--mode", help="a mode of torchbolt.list_mode_options()")
    compiling.add_argument("--backend", help="a name of torchbolt.list_backends()")
    compiling.add_argument("--fullgraph", action="store_true", help="a region that ends is an error")
    compiling.add_argument("--dynamic", action="store_true", default=None, help="sizes are symbols from the beginning")
    compiling.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="one of torchbolt.list_options()"
    )


def of(args) -> Target:
    """What the command line names, ready to be called."""
    if args.threads:
        torch.set_num_threads(args.threads)
    with _told(args.target, "cannot be loaded"):
        target = _resolve(args.target, args.full_size)
    _take_inputs(target, args.input)
    _check_arguments(target)
    _move(target, args.device, args.dtype)
    target.gradients = args.gradients
    given = {"mode": args.mode, "backend": args.backend, "fullgraph": args.fullgraph, "dynamic": args.dynamic}
    target.options = {name: value for name, value in given.items() if value}
    if args.option:
        target.options["options"] = dict(_option(text) for text in args.option)
    try:
        target.compiled()
    except exc.TorchboltError as error:
        raise UsageError(str(error).removeprefix("torchbolt.compile: ")) from None
    return target


def _resolve(text: str, full_size: bool) -> Target:
    if text == DEMO:
        model, x = models.demo()
        return Target("demo: an encoder of six layers", model, (x,))
    place, colon, name = text.rpartition(":")
    if text.endswith(".py") or os.path.isfile(text):
        return _in_module(_of_file(text), "", text)
    if colon and place.endswith(".py"):
        return _in_module(_of_file(place), name, text)
    if colon and place not in ("hf", "timm"):
        return _in_module(_imported(place), name, text)
    title, model, kwargs = models.named(text, full_size)
    return Target(title, model, (), kwargs)


def _of_file(path: str):
    if not os.path.isfile(path):
        raise UsageError(f"no file {path!r}")
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _imported(name: str):
    if os.getcwd() not in sys.path:  # a program that pip installed is not started from here
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"no module {name!r} here or among the installed ones") from None
        raise


def _in_module(module, path: str, text: str) -> Target:
    if not path:
        path = next((name for name in _NAMES if hasattr(module, name)), "")
    if not path:
        raise UsageError(
            f"{text} has no `model` and no `fn`: name what is meant ({text}:NAME), or `torchbolt run {text}`"
        )
    found = module
    for part in path.split("."):
        if not hasattr(found, part):
            public = [n for n, what in vars(found).items() if n[0] != "_" and not inspect.ismodule(what)]
            raise UsageError(f"{text}: there is no {part!r} in {getattr(found, '__name__', found)}; {_list(public)}")
        found = getattr(found, part)
    target = _made(Target(text, found))
    if hasattr(module, "inputs") and not (target.args or target.kwargs) and _takes_any(target.fn):
        inputs = module.inputs() if callable(module.inputs) else module.inputs
        target.args, target.kwargs = _as_arguments(inputs)
    return target


def _list(names: list[str]) -> str:
    return "there are " + ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def _made(target: Target) -> Target:
    """What a class, or a function without parameters, makes, where that is something to call."""
    fn = target.fn
    if isinstance(fn, torch.nn.Module) or not callable(fn) or _required(fn):
        return target
    if inspect.isclass(fn):
        return Target(target.name, fn())
    if inspect.isfunction(fn) and not inspect.signature(fn).parameters:
        made = fn()
        if isinstance(made, torch.nn.Module):
            return Target(target.name, made)
        if isinstance(made, tuple) and made and callable(made[0]):
            return Target(target.name, made[0], *_as_arguments(made[1:] if len(made) != 2 else made[1]))
    return target


def _as_arguments(inputs) -> tuple[tuple, dict]:
    if isinstance(inputs, dict):
        return (), inputs
    if not isinstance(inputs, tuple | list):
        return (inputs,), {}
    if len(inputs) == 2 and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], dict):
        return tuple(inputs[0]), inputs[1]
    return tuple(inputs), {}


def _signature(fn):
    try:
        return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):
        return None


def _takes_any(fn) -> bool:
    signature = _signature(fn)
    return signature is None or bool(signature.parameters)


def _required(fn) -> list[str]:
    """Names of the parameters that a call must give."""
    signature = _signature(fn)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        p.name
        for p in (signature.parameters.values() if signature else ())
        if p.default is p.empty and p.kind not in variadic
    ]


def _check_arguments(target: Target) -> None:
    if not callable(target.fn):
        raise UsageError(f"{target.name} is a {type(target.fn).__name__}, nothing that can be called")
    signature = _signature(target.fn)
    try:
        if signature:
            signature.bind(*target.args, **target.kwargs)
    except TypeError as error:
        raise UsageError(
            f"{target.name}{signature} cannot be called so: {error}. Give its arguments with --input "
            "(--input 2x8 --input n=3), or write `inputs` beside it"
        ) from None


def _take_inputs(target: Target, specs: list[str]) -> None:
    """--input takes the place of what was there: all positions, or the keywords it names."""
    torch.manual_seed(1)
    parsed = [_input(spec) for spec in specs]
    if positions := tuple(value for name, value in parsed if not name):
        target.args, target.kwargs = positions, {}
    if named := {name: value for name, value in parsed if name}:
        target.args, target.kwargs = _by_name(target)
        target.kwargs = target.kwargs | named


def _by_name(target: Target) -> tuple[tuple, dict]:
    """The arguments as keywords, as far as parameters have names, so that --input can replace one."""
    signature = _signature(target.fn)
    if signature is None:
        return target.args, target.kwargs
    names = [p.name for p in signature.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD][: len(target.args)]
    if len(names) < len(target.args):
        return target.args, target.kwargs
    return (), dict(zip(names, target.args, strict=True)) | target.kwargs


def _input(spec: str):
    name, _, rest = spec.rpartition("=")
    sizes, _, kind = rest.partition(":")
    try:
        for number in (int, float):
            with contextlib.suppress(ValueError):
                return name, number(rest)
        return name, _tensor([int(n) for n in sizes.split("x")], kind)
    except (ValueError, AttributeError):
        raise UsageError(f"{spec!r} is no input: {_SPEC}") from None


def _tensor(sizes: list[int], kind: str):
    name, _, bounds = kind.partition(":")
    dtype = getattr(torch, name or "float32")
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=dtype)
    if dtype == torch.bool:
        return torch.rand(sizes) > 0.5
    low, high = (int(n) for n in (bounds or "0..2").split(".."))
    return torch.randint(low, high, sizes, dtype=dtype)


def _move(target: Target, device: str | None, dtype: str | None) -> None:
    if not device and not dtype:
        return
    to = getattr(torch, dtype, None) if dtype else None
    if dtype and not isinstance(to, torch.dtype):
        raise UsageError(f"--dtype {dtype}: torch has no such dtype")
    if device:
        _check_device(device)
    target.fn = _moved(target.fn, device, to)
    target.args = tuple(_moved(value, device, to) for value in target.args)
    target.kwargs = {name: _moved(value, device, to) for name, value in target.kwargs.items()}


def _check_device(device: str) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {device}: torch sees no CUDA device here (`torchbolt probe` says what it sees)")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from None


def _moved(value, device, dtype):
    if isinstance(value, torch.nn.Module):
        return value.to(device=device, dtype=dtype)
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device=device, dtype=dtype if value.is_floating_point() else None)


def _option(text: str):
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--option {text}: it takes NAME=VALUE")
    if name not in OPTIONS:
        raise UsageError(f"--option {name}: there is no such option; torchbolt.describe_options() lists them")
    known = {"true": True, "false": False, "none": None}
    if value.lower() in known:
        return name, known[value.lower()]
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    return name, value
