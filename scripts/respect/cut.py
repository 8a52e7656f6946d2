"""The cut of a node order into stages (rho in RESPECT, equation 2) for many small DAGs at once, while training.

It is the same rule as the package's own cut, on arrays that numba compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["compiled_cut", "cut"]

Integers = NDArray[np.int64]


@cache
def compiled_cut() -> Callable[..., Any]:
    """Return ``cut_all``, compiled where numba is installed."""
    try:
        from numba import njit
    except ImportError:
        return _cut_all_plain
    one = njit(cache=True)(cut)

    def cut_all(orders: Integers, parents: Integers, memory: Integers, sizes: Integers, counts: Integers) -> Integers:
        result = np.zeros(orders.shape, np.int64)
        for row in range(len(orders)):
            result[row] = one(orders[row], parents[row], memory[row], sizes[row], counts[row])
        return result

    return cut_all


def _cut_all_plain(
    orders: Integers, parents: Integers, memory: Integers, sizes: Integers, counts: Integers
) -> Integers:
    return np.array([cut(*row) for row in zip(orders, parents, memory, sizes, counts, strict=True)])


def cut(order: Integers, parents: Integers, memory: Integers, sizes: Integers, count: int) -> Integers:
    """Return per node the stage that the best contiguous cut of a topological ``order`` gives it.

    Args:
        order: The nodes, each once, parents first.
        parents: Per node a row of its parents, filled up with -1.
        memory: Parameters per node.
        sizes: Output size per node.
        count: Stages; none is empty.
    """
    nodes = len(order)
    unknown = np.int64(1) << np.int64(60)
    loads = np.zeros((nodes + 1, nodes), np.int64)
    moves = np.zeros((nodes + 1, nodes), np.int64)
    last_read = np.zeros(nodes, np.int64)
    for end in range(1, nodes + 1):
        loads[end] = loads[end - 1]
        moves[end] = moves[end - 1]
        node = order[end - 1]
        loads[end, :end] += memory[node]
        for parent in parents[node]:
            if parent >= 0:
                moves[end, last_read[parent] + 1 : end] += sizes[parent]
                last_read[parent] = end - 1
        last_read[node] = end - 1
    peaks = np.full((count + 1, nodes + 1), unknown)
    peaks[0, 0] = 0
    for stage in range(1, count + 1):
        for end in range(stage, nodes + 1):
            for begin in range(stage - 1, end):
                peaks[stage, end] = min(peaks[stage, end], max(peaks[stage - 1, begin], loads[end, begin]))
    peak = peaks[count, nodes]
    costs = np.full((count + 1, nodes + 1), unknown)
    came = np.zeros((count + 1, nodes + 1), np.int64)
    costs[0, 0] = 0
    for stage in range(1, count + 1):
        for end in range(stage, nodes + 1):
            for begin in range(stage - 1, end):
                cost = costs[stage - 1, begin] + moves[end, begin]
                if loads[end, begin] <= peak and cost < costs[stage, end]:
                    costs[stage, end] = cost
                    came[stage, end] = begin
    result = np.zeros(nodes, np.int64)
    end = nodes
    for stage in range(count, 0, -1):
        begin = came[stage, end]
        for position in range(begin, end):
            result[order[position]] = stage - 1
        end = begin
    return result
