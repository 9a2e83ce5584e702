# tests/fuzz/conftest.py
"""The fuzzers run strict: a failure inside the compiler is an error, not a fall-back to eager."""

import os
import pathlib
import sys

# Behind everything else, so that the installed torchbolt is found before the source folder of that name.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("TORCHBOLT_STRICT", "1")
