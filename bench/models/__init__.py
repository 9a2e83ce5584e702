# bench/models/__init__.py
"""The models of the benchmark and of the end-to-end tests."""

from .registry import MODELS, NAMES, Case, Row, build, find, parse_dtype

__all__ = ["MODELS", "NAMES", "Case", "Row", "build", "find", "parse_dtype"]
