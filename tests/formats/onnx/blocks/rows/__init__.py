"""Tests of loops over rows."""
