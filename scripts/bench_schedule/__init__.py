"""Benchmarks of the scheduler against the literature: ``python -m scripts.bench_schedule --help``."""
