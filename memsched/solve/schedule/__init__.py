"""Execution orders: heuristics, exact searches, and lower bounds."""
