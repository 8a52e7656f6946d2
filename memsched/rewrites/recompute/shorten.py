"""Fewer repetitions for the same memory: unread executions are dropped, and values that fit are kept."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph
from memsched.rewrites.recompute.annotate import annotate, footprints
from memsched.rewrites.recompute.unread import Readers

__all__ = ["shorten"]

_PASSES = 8


def shorten(graph: Graph, storage: Storage, sequence: Sequence[int], budget: int, cost: Sequence[int]) -> list[int]:
    """Return ``sequence`` with fewer repetitions and no peak above ``budget``, or above its own where that is higher.

    An output whose bytes fit in until the op's next execution is kept instead, those first that save the most work
    per byte and step. That can make further repetitions unread, and room for more.

    Args:
        cost: Of one execution, per op.
    """
    readers = Readers.of(graph)
    best = readers.needed(sequence)
    limit = max([budget, *footprints(graph, storage, best)])
    for _ in range(_PASSES):
        shorter = readers.needed(_keep(graph, storage, best, limit, cost))
        if len(shorter) == len(best) or max(footprints(graph, storage, shorter)) > limit:
            break
        best = shorter
    return best


def _keep(graph: Graph, storage: Storage, sequence: list[int], limit: int, cost: Sequence[int]) -> list[int]:
    from numpy import array, int64

    schedule = annotate(graph, sequence)
    held = array(footprints(graph, storage, sequence), dtype=int64)
    released: dict[int, int] = {}
    executed: dict[int, int] = {}
    gaps: list[tuple[float, int, int]] = []
    for step, op in enumerate(sequence):
        # A view makes nothing of its own, and keeping one would keep what it lies in.
        if op in released and not graph.ops[op].views:
            size = sum(storage.sizes[buffer] for buffer in storage.creates[op])
            # One of several outputs may be gone before the others are.
            start = released[op] if len(storage.creates[op]) == 1 else executed[op]
            gaps.append((-cost[op] / max(size * (step - start), 1), start, step))
        executed[op] = step
        for dropped in schedule.releases[step]:
            released[dropped] = step
    removed = bytearray(len(sequence))
    for _, start, step in sorted(gaps):
        op = sequence[step]
        size = sum(storage.sizes[buffer] for buffer in storage.creates[op])
        # From the last reader on, which may have written in its place, up to the execution that is saved.
        between = held[start:step]
        if int(between.max()) + size <= limit:
            between += size
            removed[step] = 1
    return [op for step, op in enumerate(sequence) if not removed[step]]
