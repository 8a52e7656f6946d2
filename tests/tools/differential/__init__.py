"""Solvers of one question against each other on random graphs."""

from tests.tools.differential import addresses, orders, repetitions, shares, stages

__all__ = ["PAIRS"]

PAIRS = (*orders.PAIRS, *addresses.PAIRS, *stages.PAIRS, *shares.PAIRS, *repetitions.PAIRS)
