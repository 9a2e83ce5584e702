"""Benchmarks, the models they run, and the demo."""
