# bench/__init__.py
"""Benchmarks, the models they run, and the demo."""
