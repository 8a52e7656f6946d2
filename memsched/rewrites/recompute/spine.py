"""Long spines: directed paths through all nodes of a DAG.

Source: "Scheduling Operations on a Computation Graph", Figure 7, claims 7 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from memsched.graph import dag
from memsched.rewrites.recompute.path import PathDecomposition

__all__ = ["add_spine", "find_spine"]


def find_spine(preds: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Return the directed path through all nodes, or None where there is none.

    There is one exactly when the topological order is unique; then it is that order.
    """
    order = dag.topological_order(preds, range(len(preds)))
    joined = all(before in preds[after] for before, after in pairwise(order))
    return tuple(order) if joined else None


def add_spine(
    preds: Sequence[Sequence[int]], path: PathDecomposition
) -> tuple[tuple[int, ...], PathDecomposition, tuple[tuple[int, int], ...]]:
    """Return a topological order to make a spine of, ``path`` with room for it, and the edges it adds.

    Of the nodes that may come next the one whose bags end first does. The spine then leaves bags 0..i for later
    ones only when no node that ends there can be executed. It returns as soon as one can, which is right after one of
    its predecessors, along an edge of the graph. So it returns at most once for each node that bags i and i + 1 share,
    and leaves at most once more. Each leaving adds one node to a bag: no bag more than doubles, its own node included.
    """
    order = dag.topological_order(preds, path.last)
    last = list(path.last)
    added = []
    for before, after in pairwise(order):
        if before not in preds[after]:
            added.append((before, after))
        last[before] = max(last[before], path.first[after])
    return tuple(order), replace(path, last=tuple(last)), tuple(added)
