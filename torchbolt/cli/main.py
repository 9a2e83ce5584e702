# torchbolt/cli/main.py
"""Arguments of `torchbolt` and `python -m torchbolt` -> the exit code of the verb that they name.

Without a verb, `-m`, `-c`, `-` and files mean `run`, as Python's own command line takes them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys

from torchbolt import _build
from torchbolt.cli import benchmark, bisect, cache, diagnose, estimate, explain, output, probe, run
from torchbolt.cli.errors import UsageError
from torchbolt.options import suggest

# Verb -> its file. `run` reads its own arguments, since all behind the script are the script's.
VERBS = {
    "probe": probe,
    "benchmark": benchmark,
    "explain": explain,
    "diagnose": diagnose,
    "estimate": estimate,
    "cache": cache,
    "bisect": bisect,
}

_TARGETS = """\
TARGET is one of
  package.module:name   a module, a function, or a function without parameters that makes either
  file.py[:name]        the same in a file; without a name: `model`, else `fn`
  bert, LlamaForCausalLM, hf:gpt2, timm:resnet18
                        a configuration of transformers or timm, made small, with random weights; nothing is downloaded
  demo                  an encoder of six layers; what diagnose and benchmark take without a TARGET
Its arguments come from --input (may be repeated), else from `inputs` beside it: a tensor, a tuple, a dict of keyword
arguments, or a function that gives one of those.
"""


def parser() -> argparse.ArgumentParser:
    """All verbs but run, each with its own help."""
    whole = argparse.ArgumentParser(
        prog="torchbolt",
        description="Runs, measures and explains programs under torchbolt, a drop-in torch.compile.",
        epilog=_TARGETS + "\n`torchbolt VERB --help` says more. Exit codes: 0 yes or done, 1 no, 2 not possible.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=version())
    verbs = whole.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("run", help=run.SUMMARY, add_help=False)
    for name, module in VERBS.items():
        own = verbs.add_parser(
            name,
            help=module.SUMMARY,
            description=module.__doc__,
            epilog=_TARGETS if hasattr(module, "TAKES_TARGET") else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(own)
        own.add_argument("--json", action="store_true", help="print JSON and nothing else on standard output")
    return whole


def version() -> str:
    return f"torchbolt {_build.version} for torch {_build.torch_version}, Python {_build.python_version}"


def _means_run(arguments: list[str]) -> bool:
    first = arguments[0]
    return first in ("run", "-m", "-c", "-") or (
        first not in VERBS and (first.endswith(".py") or os.path.exists(first))
    )


def _known(first: str) -> None:
    if not first.startswith("-") and first not in VERBS:
        verbs = ["run", *VERBS]
        raise UsageError(f"no verb {first!r}, and no file of that name." + suggest(first, verbs))


def _answer(arguments: list[str]) -> int:
    """The verb's answer, printed."""
    args = parser().parse_args(arguments)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler says when it begins and ends
    with output.aside():
        facts, text, code = VERBS[args.verb].main(args)
    print(json.dumps(facts, indent=2) if args.json else text)
    return code


def main(arguments: list[str] | None = None) -> int:
    """Does what the command line says."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        parser().print_help(sys.stderr)
        return 2
    try:
        if _means_run(arguments):
            return run.main(arguments[1:] if arguments[0] == "run" else arguments)
        _known(arguments[0])
        with _interrupted():
            return _answer(arguments)
    except UsageError as error:
        print(f"torchbolt: {error}", file=sys.stderr)
        return 2


@contextlib.contextmanager
def _interrupted():
    """Ctrl-C, and a reader of the answer that has seen enough (`| head`), end a verb as they end other commands."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more as it ends
        sys.exit(128 + signal.SIGPIPE)
