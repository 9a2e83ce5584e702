# tests/ops/conftest.py
"""Strict: a failure inside the compiler is an error, not a fall-back to eager."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
os.environ.setdefault("TORCHBOLT_STRICT", "1")
