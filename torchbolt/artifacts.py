# torchbolt/artifacts.py
"""Entries of the disk cache -> bytes that another machine can take over, and back.

    magic | HMAC-SHA-256 of all that follows | length of the head | head (JSON) | the entries' bytes, one after another

The entries are machine code, so whoever can put one into the cache runs code as the user. Artifacts are therefore
signed with a key of the user's (TORCHBOLT_CACHE_KEY), and nothing of one is looked at before its signature holds. An
entry's name is the hash of all that decides its code: program, machine type, build of torchbolt, settings. On another
kind of machine, or with another build, an entry is never asked for; there it only takes up room until the cache is
trimmed.

What the cache is and where it lies is decided in src/cache/disk_cache.cpp.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import time
from typing import NamedTuple

from torchbolt import _C, _build, exc

KEY = "TORCHBOLT_CACHE_KEY"
_MAGIC = b"TORCHBOLT-ARTIFACT-1\n"
_NAME = re.compile(r"[0-9a-f]{32}\.bolt")
_SHORTEST_KEY = 16
_STARTED = time.time()

ArtifactError = exc.ArtifactError


class Entry(NamedTuple):
    name: str
    bytes: int
    used: float  # when it was last read or written, seconds since 1970


def folder() -> str:
    """Where the disk cache lies; "": there is none."""
    return _C._cache_folder()


def entries() -> list[Entry]:
    """What the cache holds, the last used first."""
    found = []
    try:
        with os.scandir(folder() or os.devnull) as listing:
            for file in listing:
                if _NAME.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    info = file.stat(follow_symlinks=False)
                    found.append(Entry(file.name, info.st_size, info.st_mtime))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda entry: -entry.used)


def used_by_this_process() -> list[Entry]:
    """Those read or written since torchbolt was imported: reading one touches its time."""
    return [entry for entry in entries() if entry.used >= _STARTED - 1]


def clear() -> int:
    """Removes all entries; how many there were."""
    count = 0
    for entry in entries():
        try:
            os.unlink(os.path.join(folder(), entry.name))
            count += 1
        except FileNotFoundError:  # another process was quicker
            pass
    return count


def key() -> bytes:
    """The user's, from the environment; an error that says how to make one."""
    given = os.environ.get(KEY, "")
    if not given:
        raise ArtifactError(
            f"artifacts hold machine code and are signed: set {KEY} to the same secret on both machines "
            "(`openssl rand -hex 32` makes one)"
        )
    if len(given) < _SHORTEST_KEY:
        raise ArtifactError(f"{KEY} is shorter than {_SHORTEST_KEY} characters (`openssl rand -hex 32` makes one)")
    return given.encode()


def _signature(body: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, body, hashlib.sha256).digest()


def contents(chosen: list[Entry]) -> tuple[list[dict], list[bytes]]:
    """A row for the head of an artifact for each entry that is there, and its bytes."""
    parts, rows = [], []
    for entry in chosen:
        try:
            with open(os.path.join(folder(), entry.name), "rb") as file:
                parts.append(file.read())
        except FileNotFoundError:
            continue
        rows.append({"name": entry.name, "bytes": len(parts[-1])})
    return rows, parts


def pack(chosen: list[Entry]) -> bytes:
    """The entries as one signed artifact."""
    secret = key()
    rows, parts = contents(chosen)
    facts = {"torchbolt": _build.version, "torch": _build.torch_version, "python": _build.python_version}
    head = json.dumps(facts | {"entries": rows}).encode()
    body = b"".join([len(head).to_bytes(8, "little"), head, *parts])
    return _MAGIC + _signature(body, secret) + body


def unpack(artifact: bytes) -> int:
    """Puts an artifact's entries into the cache; how many. ArtifactError: it is not one that may be taken over."""
    secret = key()
    size = hashlib.sha256().digest_size
    if artifact[: len(_MAGIC)] != _MAGIC:
        raise ArtifactError("this is no artifact of torchbolt's (or of another version)")
    signature, body = artifact[len(_MAGIC) :][:size], artifact[len(_MAGIC) + size :]
    if not hmac.compare_digest(signature, _signature(body, secret)):
        raise ArtifactError(f"the artifact's signature does not hold: it was made with another {KEY}, or changed since")
    length = int.from_bytes(body[:8], "little")
    return put_all(json.loads(body[8 : 8 + length])["entries"], body[8 + length :])


def put_all(rows: list[dict], body: bytes) -> int:
    """Puts what contents() gave into the cache; how many entries."""
    at, count = 0, 0
    for row in rows:
        count += _put(row["name"], body[at : at + row["bytes"]])
        at += row["bytes"]
    return count


def _put(name: str, content: bytes) -> int:
    """Writes one entry as the cache itself does: under another name, then renamed."""
    if not _NAME.fullmatch(name):
        raise ArtifactError(f"the artifact has an entry called {name!r}")
    where = folder()
    if not where:
        raise ArtifactError("there is no disk cache to put entries into (TORCHBOLT_CACHE=0, or no home folder)")
    os.makedirs(where, mode=0o700, exist_ok=True)
    temporary = os.path.join(where, f"{name}.{os.getpid()}.import.tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
    os.replace(temporary, os.path.join(where, name))
    return 1
