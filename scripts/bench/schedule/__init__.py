"""Benchmarks of the scheduler against the literature."""
