"""A DAG as rows of numbers that the learned scheduler reads (RESPECT, section III-A)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

__all__ = ["PARENTS", "WIDTH", "asap_levels", "embed"]

PARENTS = 6
"""Parents that a row has room for: the largest degree of the training graphs."""

WIDTH = 2 * PARENTS + 3
"""Numbers in a row: the level, the parents' levels, the parents' ids, the id, the memory."""


def asap_levels(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the length of the longest path from a source to each node; parents have smaller indices."""
    levels: list[int] = []
    for before in parents:
        levels.append(1 + max((levels[parent] for parent in before), default=-1))
    return levels


def embed(parents: Sequence[Sequence[int]], memory: Sequence[int]) -> NDArray[float32]:
    """Return a row of ``WIDTH`` numbers per node (RESPECT, section III-A).

    The paper hashes operator names to ids. A hash says nothing about another network, so an id here is the node's
    place in the given topological order: it is unique as a hash is, and means the same in every network. Everything
    is a ratio, so that a policy trained on 30 nodes reads 800: ids are divided by the number of nodes, levels by the
    depth, and memory is the logarithm of 1 + bytes / mean bytes. A parent that does not exist has level 0 and id -1.
    Of more than ``PARENTS`` parents, those of the latest levels are kept, of equals the latest.

    Args:
        parents: Per node, the indices of its parents, all smaller than its own.
        memory: Per node, its bytes of parameters.
    """
    import numpy as np

    count = len(parents)
    levels = asap_levels(parents)
    depth = max(levels, default=0) or 1
    mean = sum(memory) / max(count, 1) or 1.0
    rows = np.zeros((count, WIDTH), np.float32)
    rows[:, 1 + PARENTS : 1 + 2 * PARENTS] = -1
    for node, before in enumerate(parents):
        kept = sorted(before, key=lambda parent: (-levels[parent], -parent))[:PARENTS]
        rows[node, 0] = levels[node] / depth
        for slot, parent in enumerate(kept):
            rows[node, 1 + slot] = levels[parent] / depth
            rows[node, 1 + PARENTS + slot] = parent / count
        rows[node, -2] = node / count
        rows[node, -1] = math.log1p(memory[node] / mean)
    return rows
