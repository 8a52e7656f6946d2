"""Exact algebra: identities of a graph that let less wait in memory."""
