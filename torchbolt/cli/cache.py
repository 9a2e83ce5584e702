# torchbolt/cli/cache.py
"""The disk cache of machine code: where it lies and how large it is, what is in it, and how to empty it or carry it to
another machine. Exported files are signed with TORCHBOLT_CACHE_KEY, which must be the same on both machines, since what
is imported is run.
"""

from __future__ import annotations

import os
import time

from torchbolt import artifacts
from torchbolt.cli import output
from torchbolt.cli.errors import UsageError

SUMMARY = "where the disk cache is and how large; list, clear, export, import"


def arguments(parser) -> None:
    actions = "where (the default), list, clear, export FILE, import FILE"
    parser.add_argument("action", nargs="?", default="where", choices=list(_ACTIONS), metavar="ACTION", help=actions)
    parser.add_argument("file", nargs="?", metavar="FILE", help="for export and import")


def main(args):
    """(facts, text, exit code)."""
    if (args.action in ("export", "import")) != bool(args.file):
        raise UsageError(f"cache {args.action} takes {'no' if args.file else 'a'} FILE")
    try:
        return *_ACTIONS[args.action](args.file), 0
    except (artifacts.ArtifactError, OSError) as error:
        raise UsageError(f"cache {args.action}: {error}") from None


def facts() -> dict:
    """Where and how large."""
    found = artifacts.entries()
    limit = os.environ.get("TORCHBOLT_CACHE_LIMIT_MB", "1024")
    return {
        "folder": artifacts.folder(),
        "entries": len(found),
        "bytes": sum(entry.bytes for entry in found),
        "limit_mb": int(limit) if limit.isdigit() else limit,
    }


def describe(seen: dict) -> str:
    if not seen["folder"]:
        return "none (TORCHBOLT_CACHE=0, or no home folder): machine code is made anew in each process"
    return f"{seen['folder']}: {seen['entries']} entries, {output.size(seen['bytes'])} (limit {seen['limit_mb']} MB)"


def _where(_):
    seen = facts()
    return seen, describe(seen)


def _list(_):
    found = artifacts.entries()
    lines = [
        f"{entry.name}  {output.size(entry.bytes):>9}  {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(entry.used))}"
        for entry in found
    ]
    return {"entries": [entry._asdict() for entry in found]}, "\n".join(lines) or "the cache is empty"


def _clear(_):
    count = artifacts.clear()
    return {"removed": count}, f"removed {count} entries"


def _export(file):
    found = artifacts.entries()
    packed = artifacts.pack(found)
    with open(file, "wb") as out:
        out.write(packed)
    seen = {"file": os.path.abspath(file), "entries": len(found), "bytes": len(packed)}
    return seen, f"wrote {len(found)} entries, {output.size(len(packed))}, to {file}"


def _import(file):
    with open(file, "rb") as packed:
        count = artifacts.unpack(packed.read())
    return {"imported": count, "folder": artifacts.folder()}, f"took over {count} entries into {artifacts.folder()}"


_ACTIONS = {"where": _where, "list": _list, "clear": _clear, "export": _export, "import": _import}
