"""Addresses for the buffers of a schedule."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

from memsched.allocate.buffers import Buffer, blocks, buffers
from memsched.allocate.greedy import MOST_SCANNED, near_enough, sweep
from memsched.allocate.portfolio import pack
from memsched.graph.liveness import Storage
from memsched.graph.model import Allocation, Graph, Placement, Schedule
from memsched.graph.packing import Packing, PackStatus
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
    wanted = buffers(graph, schedule, storage)
    return place(wanted, alignment=alignment, run=run)


def place(
    wanted: Sequence[Buffer],
    *,
    alignment: int,
    run: Run | None = None,
) -> Allocation:
    """Return addresses for ``wanted``; see `allocate`."""
    if len(wanted) > MOST_SCANNED and all(buffer.group is None for buffer in wanted):
        swept = _swept(wanted, alignment)
        if swept is not None:
            return swept
    packed = blocks(wanted, alignment)
    packing = pack(packed.blocks, run)
    offsets = [packing.offsets[block] + buffer.distance for block, buffer in zip(packed.block_of, wanted, strict=True)]
    return _allocation(wanted, offsets, packed.sizes, packing, alignment)


def _swept(wanted: Sequence[Buffer], alignment: int) -> Allocation | None:
    """Return what one sweep over very many buffers finds, where that is near enough to the bound; else None."""
    sizes = [-(-buffer.size // alignment) * alignment for buffer in wanted]
    spans = [(buffer.first_step, buffer.last_step + 1) for buffer in wanted]
    bound = _live_bound(spans, sizes)
    offsets = sweep(spans, sizes, tight=True)
    height = max(map(operator.add, offsets, sizes))
    if not near_enough(height, bound):
        return None
    status: PackStatus = "optimal" if height == bound else "feasible"
    packing = Packing((), height, bound, status, "bytes in use at once", "best fit by time")
    return _allocation(wanted, offsets, sizes, packing, alignment)


def _live_bound(spans: Sequence[tuple[int, int]], sizes: Sequence[int]) -> int:
    change = [0] * (max([end for _, end in spans]) + 1)
    for (begin, end), size in zip(spans, sizes, strict=True):
        change[begin] += size
        change[end] -= size
    return max(itertools.accumulate(change))


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
