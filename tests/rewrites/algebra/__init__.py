"""Tests of memsched.rewrites.algebra."""
