"""Benchmarks of the scheduler against the literature: ``python -m scripts.bench.schedule --help``."""
