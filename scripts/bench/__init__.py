"""Benchmarks: each module that declares a ``BENCH`` prints one table or more; `scripts.bench.runner` runs them."""
