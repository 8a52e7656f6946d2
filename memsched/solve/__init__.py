"""Solvers of the two problems that all else is built on: an order of operators, and addresses of buffers."""
