# tests/tape/conftest.py
"""Strict: a failure inside the compiler is an error; and a cache of its own."""

import os
import pathlib
import sys
import tempfile

# Behind everything else, so that the installed torchbolt is found before the source folder of that name.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("TORCHBOLT_STRICT", "1")
_cache = tempfile.TemporaryDirectory(prefix="torchbolt-tests-")
os.environ.setdefault("TORCHBOLT_CACHE_DIR", _cache.name)
