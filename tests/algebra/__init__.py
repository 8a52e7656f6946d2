"""Tests of memsched.algebra."""
