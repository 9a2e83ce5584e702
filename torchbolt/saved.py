# torchbolt/saved.py
"""save() and load(): what a compiled callable has compiled -> a file -> the same in another process, whose first call
neither records nor compiles.

    magic | HMAC-SHA-256 of all that follows, or zeros | length of the head | head (JSON, compressed) | cache entries

The head has the entries as src/session/saved.h writes them (numbers and texts), and each object that they name as one
knows it in another process: by value, or by the way to it from a module or from the target (torchbolt/references.py),
with a hash of its code. Nothing is a pickle. Where torch, Python, torchbolt, the machine or code that was reached is
another one, load() refuses and says so.

Who can write such a file decides what runs, as with the disk cache. So a file is signed where TORCHBOLT_CACHE_KEY is
set, and one without a signature is only taken if it lies where nobody but the user and root can write.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import inspect
import json
import os
import platform
import stat
import types
import zlib
from dataclasses import replace
from pathlib import Path

import torch

from torchbolt import _C, _build, api, artifacts, exc, options, references

_MAGIC = b"TORCHBOLT-SAVED-1\n"
_SIZE = hashlib.sha256().digest_size
_UNSIGNED = bytes(_SIZE)


def save(compiled, path) -> int:
    """Writes what `compiled` (that compile() gave and that was called) has compiled to `path`; how many regions."""
    inner = api.compiled_of(compiled)
    if inner is None:
        raise exc.ArtifactError(f"torchbolt.save: {type(compiled).__name__} is nothing that torchbolt.compile() gave")
    _C.wait()
    try:
        roots = _roots(compiled, inner)
        numbers, texts, objects = inner._saved(list(roots.weights.values()))
        told = references.Writer(roots).all(objects)
    except exc.ArtifactError as error:
        raise exc.ArtifactError(f"torchbolt.save: {api.name_of(inner)} cannot be saved: {error}") from None
    regions = inner._regions()
    if not any("ops" in region for region in regions):
        raise exc.ArtifactError(f"torchbolt.save: {api.name_of(inner)} has compiled nothing yet: call it first")
    head = {
        "here": _here(),
        "options": _plain_options(inner._asked.options),
        "target": references.name_of(inner.__wrapped__),
        "numbers": numbers,
        "texts": texts,
        "objects": told,
    }
    chosen = artifacts.used_by_this_process()
    rows, parts = artifacts.contents(chosen)
    packed = zlib.compress(json.dumps(head | {"entries": rows}).encode(), 3)
    body = b"".join([len(packed).to_bytes(8, "little"), packed, *parts])
    signature = _signature(body) if os.environ.get(artifacts.KEY) else _UNSIGNED
    _write(os.fspath(path), _MAGIC + signature + body)
    return len(regions)


def load(path, model):
    """`model` (a function, method or nn.Module) compiled as what was saved, with all that was compiled then.

    Raises ArtifactError with the reason where it would not be the same: other code, torch, Python, torchbolt, machine.
    """
    body = _read(os.fspath(path))
    length = int.from_bytes(body[:8], "little")
    head = json.loads(zlib.decompress(body[8 : 8 + length]))
    try:
        _check_here(head["here"])
        compiled = api.compile(model, **_arguments(head["options"]))
        inner = api.compiled_of(compiled)
        if references.name_of(inner.__wrapped__) != head["target"]:
            raise exc.ArtifactError(f"it is of {head['target']}, not of {references.name_of(inner.__wrapped__)}")
        objects = references.Reader(_roots(compiled, inner)).all(head["objects"])
        if artifacts.folder():
            artifacts.put_all(head["entries"], body[8 + length :])
        inner._restore(head["numbers"], head["texts"], objects)
    except exc.ArtifactError as error:
        raise exc.ArtifactError(f"torchbolt.load: {path} is not taken: {error}") from None
    return compiled


def _roots(compiled, inner) -> references.Roots:
    """From where both processes find things. Weights are what calls may find folded or packed: parameters and buffers
    of the module, or of those that a function has at hand. What is not among them is folded in the first call."""
    model = getattr(compiled, "_torchbolt_original", getattr(compiled, "__self__", None))
    held = {"model": model}
    function = inspect.unwrap(inner)
    if isinstance(function, types.FunctionType):
        held |= {name: function.__globals__.get(name) for name in function.__code__.co_names}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty one
                held[name] = cell.cell_contents
    weights = {}
    for place, module in held.items():
        if isinstance(module, torch.nn.Module):
            for each in (module.named_parameters, module.named_buffers):
                weights |= {f"{place}.{name}": tensor for name, tensor in each(remove_duplicate=False)}
    return references.Roots(inner.__wrapped__, model, weights)


# ---- what must be the same


def _here() -> dict[str, str]:
    return {
        "torchbolt": f"{_build.version} ({_build_of_libraries()})",
        "torch": str(torch.__version__),
        "Python": platform.python_version(),
        "the machine": _machine(),
        "the devices": ", ".join(_devices()) or "none",
    }


def _check_here(saved: dict[str, str]) -> None:
    for what, here in _here().items():
        if saved.get(what) != here:
            raise exc.ArtifactError(f"{what} is {here}, and was {saved.get(what)} where it was saved")


def _build_of_libraries() -> str:
    """Their first page holds the linker's build id."""
    digest = hashlib.sha256()
    for library in (Path(_C.__file__), Path(_C.__file__).parent / "libtorchbolt_core.so"):
        if library.exists():
            with library.open("rb") as file:
                digest.update(file.read(4096))
    return digest.hexdigest()[:12]


def _machine() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            rows = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    except OSError:
        return platform.processor() or platform.machine()
    facts = {key.strip(): value.strip() for key, value in rows.items()}
    flags = facts.get("flags", facts.get("Features", ""))
    return f"{facts.get('model name', platform.machine())}, flags {hashlib.sha256(flags.encode()).hexdigest()[:8]}"


def _devices() -> list[str]:
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


# ---- options, as plain data


def _plain_options(given: options.Options) -> dict:
    plain = {name: getattr(given, name) for name in ("fullgraph", "dynamic", "background", "recompile_limit", "name")}
    return plain | {"mode": given.mode, "extra": [list(row) for row in given.extra]}


def _arguments(plain: dict) -> dict:
    given = replace(options.Options(), extra=tuple((name, value) for name, value in plain["extra"]))
    extra = {name: value for name, value in given.extra if name not in options.MODES.get(plain["mode"], {})}
    asked = {"mode": plain["mode"]} if plain["mode"] != "default" else {}
    if extra:
        asked = {"options": dict(given.extra)}
    names = ("fullgraph", "dynamic", "background", "recompile_limit", "name")
    return {name: plain[name] for name in names if plain[name] not in (None, "")} | asked


# ---- the file


def _signature(body: bytes) -> bytes:
    return hmac.new(artifacts.key(), body, hashlib.sha256).digest()


def _write(path: str, content: bytes) -> None:
    """Under another name, then renamed: a reader sees all of it or nothing."""
    temporary = f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: str) -> bytes:
    """What follows the signature. ArtifactError: it is not to be trusted."""
    refusal = f"torchbolt.load: {path} is not taken: "
    with open(path, "rb") as file:
        others = _who_else_may_write(path, os.fstat(file.fileno()))
        content = file.read()
    if content[: len(_MAGIC)] != _MAGIC:
        raise exc.ArtifactError(refusal + "torchbolt.save() of this version did not write it")
    signature, body = content[len(_MAGIC) :][:_SIZE], content[len(_MAGIC) + _SIZE :]
    if signature != _UNSIGNED:
        if not hmac.compare_digest(signature, _signature(body)):
            raise exc.ArtifactError(refusal + f"it was signed with another {artifacts.KEY}, or changed since")
    elif others:
        raise exc.ArtifactError(
            refusal + f"it holds code, has no signature, and {others}; sign it by setting {artifacts.KEY} where it is "
            "saved and loaded"
        )
    return body


def _who_else_may_write(path: str, info: os.stat_result) -> str:
    """Besides the user and root; "": nobody. The rules of src/cache/own_folder.h."""

    def is_foreign(info: os.stat_result) -> bool:
        return info.st_uid not in (0, os.geteuid())

    if not stat.S_ISREG(info.st_mode) or is_foreign(info) or info.st_mode & 0o022:
        return "others may write it"
    for folder in Path(os.path.realpath(path)).parents:
        above = folder.stat()
        if is_foreign(above) or (above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX):
            return f"others may write {folder}"
    return ""
