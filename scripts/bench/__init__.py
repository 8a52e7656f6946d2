"""Benchmarks: each module measures and prints one table or more."""
