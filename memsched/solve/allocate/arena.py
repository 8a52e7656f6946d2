"""Addresses for the buffers of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from memsched.graph.liveness import Storage
from memsched.graph.model import Allocation, Graph, Placement, Schedule
from memsched.graph.packing import Packing
from memsched.graph.uses import sums
from memsched.search.run import Run
from memsched.solve.allocate.buffers import Buffer, blocks, buffers
from memsched.solve.allocate.columns import PlacedColumns, columns_of
from memsched.solve.allocate.greedy import MOST_SCANNED, near_enough, sweep
from memsched.solve.allocate.portfolio import pack

__all__ = ["Packed", "allocate", "packed", "place"]


class Packed:
    """Addresses of which at first only the arena is known: of most orders nobody asks for more.

    Attributes:
        arena: Bytes, as in `Allocation.arena`.
    """

    def __init__(self, arena: int, allocation: Callable[[], Allocation]) -> None:
        self.arena, self._allocation = arena, allocation

    @staticmethod
    def of(allocation: Allocation) -> Packed:
        """Return addresses that are known."""
        return Packed(allocation.arena, lambda: allocation)

    @cached_property
    def allocation(self) -> Allocation:
        """Return the addresses."""
        return self._allocation()

    def __reduce__(self) -> tuple[Callable[[Allocation], Packed], tuple[Allocation]]:
        """Give other processes the addresses, as what makes them stays here."""
        return Packed.of, (self.allocation,)


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
    return packed(graph, schedule, alignment=alignment, storage=storage, run=run).allocation


def packed(
    graph: Graph,
    schedule: Schedule,
    *,
    alignment: int,
    storage: Storage | None = None,
    run: Run | None = None,
) -> Packed:
    """Return the arena that `allocate` finds, and its addresses once they are asked for."""
    storage = storage or Storage.of(graph)
    if storage.uses is not None:
        spans = columns_of(graph, schedule, storage, storage.uses)
        found = None if spans is None or len(spans.sizes) <= MOST_SCANNED else _swept(spans, alignment)
        if found is not None:
            return found
    return Packed.of(place(buffers(graph, schedule, storage), alignment=alignment, run=run))


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


def _swept(spans: PlacedColumns, alignment: int) -> Packed | None:
    """Return what one sweep over very many buffers finds, where that is near enough to the bound; else None."""
    import numpy as np

    rounded = -(-spans.sizes // alignment) * alignment
    steps = int(spans.ends.max()) + 2
    change = sums(spans.begins, rounded, steps) - sums(spans.ends + 1, rounded, steps)
    bound = int(np.cumsum(change).max())
    offsets = np.array(sweep(spans.begins, spans.ends + 1, rounded.tolist(), tight=True), dtype=np.int64)
    height = int((offsets + rounded).max())
    if not near_enough(height, bound):
        return None

    def allocation() -> Allocation:
        same: dict[int, int] = {}  # few sizes differ, and each number takes as much memory as four of them in an array
        sizes = rounded.tolist()
        columns = offsets.tolist(), map(same.setdefault, sizes, sizes), spans.begins.tolist(), spans.ends.tolist()
        return Allocation(
            placements=tuple(map(Placement, spans.named(), *columns)),
            arena=height,
            lower_bound=bound,
            alignment=alignment,
            status="optimal" if height == bound else "feasible",
            method="best fit by time",
        )

    return Packed(height, allocation)


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
