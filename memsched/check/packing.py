"""The independent checker of packings: it recomputes every claim about addresses from the definitions of `packing`.

It shares no code with the allocators, so that one mistake cannot hide in both.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Sequence

from memsched.base.errors import InternalError
from memsched.graph.packing import Block, BlockPart, Packing

__all__ = ["check_packing"]

_Rectangle = tuple[int, int, int, int, int]
"""Block, first time, end of time, first byte, end of bytes."""


def check_packing(blocks: Sequence[Block], packing: Packing, capacity: int | None = None) -> None:
    """Check that ``packing`` gives every block a permitted address and no two the same byte at the same time.

    Args:
        capacity: Bytes that the packing claims to fit into, or within which it claims that none exists.

    Raises:
        InternalError: A wrong height, bound or status, a forbidden address, an overlap, or too little room.
    """
    if packing.status == "infeasible":
        if capacity is None or packing.lower_bound <= capacity or packing.offsets or packing.height:
            raise InternalError(
                f"nothing is said to fit, but the bound is {packing.lower_bound} of {capacity} bytes",
                code="misfit-claim",
            )
        return
    if len(packing.offsets) != len(blocks):
        raise InternalError(
            f"{len(packing.offsets)} addresses are given for {len(blocks)} blocks", code="address-count"
        )
    for index, (block, offset) in enumerate(zip(blocks, packing.offsets, strict=True)):
        _check_address(index, block, offset)
    height = max((offset + block.size for block, offset in zip(blocks, packing.offsets, strict=True)), default=0)
    if height != packing.height:
        raise InternalError(
            f"the packing is claimed to be {packing.height} bytes high, but is {height}", code="height-claim"
        )
    if packing.lower_bound > height or (packing.status == "optimal" and packing.lower_bound != height):
        raise InternalError(
            f"a height of {height} bytes does not fit the bound of {packing.lower_bound} bytes", code="bound"
        )
    if capacity is not None and height > capacity:
        raise InternalError(f"a height of {height} bytes does not fit into {capacity} bytes", code="too-high")
    _check_overlap([r for i, block in enumerate(blocks) for r in _rectangles(i, block, packing.offsets[i])])


def _check_address(index: int, block: Block, offset: int) -> None:
    if offset < 0 or offset % block.alignment:
        raise InternalError(
            f"block {index} lies at {offset}, which is no multiple of {block.alignment}", code="misaligned"
        )
    if block.offset is not None and offset != block.offset:
        raise InternalError(f"block {index} lies at {offset}, but {block.offset} was given", code="given-address")
    if block.size < 0 or any(not 0 <= part.low <= part.high <= block.size for part in block.parts):
        raise InternalError(f"block {index} has a part outside its {block.size} bytes", code="part-outside")


def _rectangles(index: int, block: Block, offset: int) -> list[_Rectangle]:
    """Return what a block occupies, as the union of its parts' bytes between changes, so that none overlap."""
    result: list[_Rectangle] = []
    times = sorted({time for part in block.parts for time in (part.begin, part.end)})
    coming = sorted(block.parts, key=lambda part: part.begin, reverse=True)
    live: list[BlockPart] = []
    for begin, end in itertools.pairwise(times):
        reach = 0
        while coming and coming[-1].begin <= begin:
            live.append(coming.pop())
        live = [part for part in live if part.end > begin]
        for low, high in sorted((part.low, part.high) for part in live):
            start = max(low, reach)
            if start < high:
                result.append((index, begin, end, offset + start, offset + high))
                reach = high
    return result


def _check_overlap(rectangles: list[_Rectangle]) -> None:
    """Sweep over the times, keeping the live ranges of addresses sorted: only neighbours can meet first."""
    active: list[tuple[int, int, int]] = []
    ending: list[tuple[int, tuple[int, int, int]]] = []
    for index, begin, end, low, high in sorted(rectangles, key=lambda one: one[1]):
        while ending and ending[0][0] <= begin:
            _, gone = heapq.heappop(ending)
            active.pop(bisect.bisect_left(active, gone))
        key = (low, high, index)
        at = bisect.bisect_left(active, key)
        for other in active[max(at - 1, 0) : at + 1]:
            if other[0] < high and low < other[1]:
                raise InternalError(
                    f"blocks {other[2]} and {index} both lie at {max(low, other[0])} at time {begin}", code="overlap"
                )
        active.insert(at, key)
        heapq.heappush(ending, (end, key))
