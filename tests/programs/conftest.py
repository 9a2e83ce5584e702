# tests/programs/conftest.py
"""The tables run strict: a failure inside the compiler is an error, not a fall-back to eager."""

import os

os.environ.setdefault("TORCHBOLT_STRICT", "1")
