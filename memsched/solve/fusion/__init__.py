"""Simplifications of a graph that keep the optimum of its schedule."""
