"""Checkers of every result: they recompute all figures from the definitions and share no code with what they check."""
