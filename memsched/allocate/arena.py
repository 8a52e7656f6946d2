"""Addresses for the buffers of a schedule."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

from memsched.allocate.buffers import Buffer, blocks, buffers
from memsched.allocate.columns import PlacedColumns, columns_of
from memsched.allocate.greedy import MOST_SCANNED, near_enough, sweep
from memsched.allocate.portfolio import pack
from memsched.graph.liveness import Storage
from memsched.graph.model import Allocation, Graph, Placement, Schedule
from memsched.graph.packing import Packing
from memsched.graph.uses import sums
from memsched.search.run import Run

__all__ = ["allocate", "place"]


def allocate(
    graph: Graph,
    schedule: Schedule,
    *,
    alignment: int,
    storage: Storage | None = None,
    run: Run | None = None,
) -> Allocation:
    """Return addresses for the buffers of ``schedule``; every offset and size is a multiple of ``alignment`` bytes.

    The status is "optimal" when the arena equals a proven bound.

    Args:
        storage: Of ``graph``, where the caller has it already.
        run: When to end, with the smallest arena so far; None for no exact search.
    """
    storage = storage or Storage.of(graph)
    if storage.uses is not None:
        spans = columns_of(graph, schedule, storage, storage.uses)
        found = None if spans is None or len(spans.tensors) <= MOST_SCANNED else _swept(spans, alignment)
        if found is not None:
            return found
    return place(buffers(graph, schedule, storage), alignment=alignment, run=run)


def place(
    wanted: Sequence[Buffer],
    *,
    alignment: int,
    run: Run | None = None,
) -> Allocation:
    """Return addresses for ``wanted``; see `allocate`."""
    packed = blocks(wanted, alignment)
    packing = pack(packed.blocks, run)
    offsets = [packing.offsets[block] + buffer.distance for block, buffer in zip(packed.block_of, wanted, strict=True)]
    return _allocation(wanted, offsets, packed.sizes, packing, alignment)


def _swept(spans: PlacedColumns, alignment: int) -> Allocation | None:
    """Return what one sweep over very many buffers finds, where that is near enough to the bound; else None."""
    import numpy as np

    rounded = -(-spans.sizes // alignment) * alignment
    steps = int(spans.ends.max()) + 2
    change = sums(spans.begins, rounded, steps) - sums(spans.ends + 1, rounded, steps)
    bound = int(np.cumsum(change).max())
    begins, ends, sizes = spans.begins.tolist(), spans.ends.tolist(), rounded.tolist()
    offsets = sweep(spans.begins, spans.ends + 1, sizes, tight=True)
    height = max(map(operator.add, offsets, sizes))
    if not near_enough(height, bound):
        return None
    same: dict[int, int] = {}  # few sizes differ, and each number takes as much memory as four of them in an array
    rows = zip(spans.tensors, offsets, map(same.setdefault, sizes, sizes), begins, ends, strict=True)
    return Allocation(
        placements=tuple(itertools.starmap(Placement, rows)),
        arena=height,
        lower_bound=bound,
        alignment=alignment,
        status="optimal" if height == bound else "feasible",
        method="best fit by time",
    )


def _allocation(
    wanted: Sequence[Buffer], offsets: Sequence[int], sizes: Sequence[int], packing: Packing, alignment: int
) -> Allocation:
    return Allocation(
        placements=tuple(
            [
                Placement(buffer.tensors, offset, size, buffer.first_step, buffer.last_step)
                for buffer, offset, size in zip(wanted, offsets, sizes, strict=True)
            ]
        ),
        arena=packing.height,
        lower_bound=packing.lower_bound,
        alignment=alignment,
        status="optimal" if packing.status == "optimal" else "feasible",
        method=packing.method,
    )
