"""Orders that need no policy, to hold the policy's against."""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heappop, heappush

from memsched.features.pipeline.respect_embedding import asap_levels
from memsched.graph.dag import successors_of

__all__ = ["asap_order", "random_order"]


def asap_order(preds: Sequence[Sequence[int]], _: Sequence[int]) -> list[int]:
    """Return the nodes by their level, equals by index."""
    levels = asap_levels(preds)
    return sorted(range(len(preds)), key=levels.__getitem__)


def random_order(preds: Sequence[Sequence[int]], rng: random.Random) -> list[int]:
    """Return a random topological order: each node has a random rank, the ready one of the least is next."""
    children = successors_of(preds)
    waiting = [len(before) for before in preds]
    ready: list[tuple[float, int]] = []
    for node, missing in enumerate(waiting):
        if not missing:
            heappush(ready, (rng.random(), node))
    order = []
    while ready:
        _, node = heappop(ready)
        order.append(node)
        for child in children[node]:
            waiting[child] -= 1
            if not waiting[child]:
                heappush(ready, (rng.random(), child))
    return order
