"""One order with its blocks: greedy addresses at the price of a few milliseconds, exact ones at that of a few more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage
from memsched.graph.model import Allocation, Graph, Placement, Schedule
from memsched.graph.packing import height_of
from memsched.search.run import Run
from memsched.solve.allocate.bounds import lower_bound
from memsched.solve.allocate.buffers import Buffer, PackingInput, blocks, buffers
from memsched.solve.allocate.conflicts import without_overlaps
from memsched.solve.allocate.greedy import GreedyPlanner
from memsched.solve.joint.fit import fit

__all__ = ["Layout", "live_bytes"]


def live_bytes(allocation: Allocation) -> int:
    """Return the largest sum of sizes that are live at once, bytes: no packing of these buffers is lower."""
    change: dict[int, int] = {}
    for placement in allocation.placements:
        change[placement.first_step] = change.get(placement.first_step, 0) + placement.size
        change[placement.last_step + 1] = change.get(placement.last_step + 1, 0) - placement.size
    return max(itertools.accumulate(change[step] for step in sorted(change)), default=0)


class Layout(FrozenValue, frozen=True):
    """The blocks of a schedule and greedy addresses for them.

    Attributes:
        bound: No packing of these blocks is lower, bytes.
        offsets: Per block its address.
        height: Their arena, bytes.
        method: The planner that found them.
    """

    schedule: Schedule
    alignment: int
    bound: int
    offsets: tuple[int, ...]
    height: int
    method: str
    wanted: tuple[Buffer, ...]
    packed: PackingInput

    @staticmethod
    def of(
        graph: Graph,
        storage: Storage,
        schedule: Schedule,
        alignment: int,
        stop: Callable[[], bool] | None = None,
    ) -> Layout:
        """Plan ``schedule`` greedily; ``stop`` ends that with what the planners before found.

        Raises:
            GraphError: Its part views contradict each other in this order: pieces at the same bytes are live at once.
        """
        wanted = buffers(graph, schedule, storage)
        packed = blocks(wanted, alignment)
        bound, _ = lower_bound(packed.blocks)
        height, offsets, method = GreedyPlanner(without_overlaps(packed.blocks)).run(bound, stop)
        return Layout(schedule, alignment, bound, tuple(offsets), height, method, wanted, packed)

    def exceeding(self) -> list[int]:
        """Return the steps at which blocks that reach above the bound begin and end."""
        steps: set[int] = set()
        for block, offset in zip(self.packed.blocks, self.offsets, strict=True):
            if offset + block.size > self.bound:
                steps.update(step for part in block.parts for step in (part.begin, part.end - 1))
        return sorted(steps)

    def fit(self, capacity: int, *, effort: float, run: Run) -> tuple[int, ...] | None:
        """Return addresses at or below ``capacity`` bytes; None where none were found with this effort."""
        if capacity < self.bound:
            return None
        return fit(self.packed.blocks, capacity, effort=effort, run=run)

    def allocation(self, offsets: Sequence[int], method: str) -> Allocation:
        """Return the addresses ``offsets`` of the blocks as those of the buffers."""
        arena = height_of(self.packed.blocks, offsets)
        return Allocation(
            placements=tuple(
                Placement(buffer.tensors, offsets[block] + buffer.distance, size, buffer.first_step, buffer.last_step)
                for buffer, block, size in zip(self.wanted, self.packed.block_of, self.packed.sizes, strict=True)
            ),
            arena=arena,
            lower_bound=self.bound,
            alignment=self.alignment,
            status="optimal" if arena == self.bound else "feasible",
            method=method,
        )
