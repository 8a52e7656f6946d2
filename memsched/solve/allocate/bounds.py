"""Lower bounds on the height of a packing, from the bytes in use at one time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from memsched.graph.packing import Block

__all__ = ["live_bound", "lower_bound"]


def lower_bound(blocks: Sequence[Block]) -> tuple[int, str]:
    """Return a lower bound on the height of a packing of ``blocks``, bytes, and its proof in words."""
    largest = max([block.size + (block.offset or 0) for block in blocks], default=0)
    live = live_bound(blocks)
    return (live, "bytes in use at once") if live >= largest else (largest, "the end of one block")


def live_bound(blocks: Sequence[Block]) -> int:
    """Return the largest sum of bytes in use at once, rounded where alignment wastes them; parts must not overlap.

    Where every part begins on the grid that all addresses lie on, no two parts share a cell of it, so that every
    size but the topmost one's counts in whole cells.
    """
    parts = [part for block in blocks for part in block.parts]
    grid = math.gcd(*[block.alignment if block.offset is None else block.offset for block in blocks])
    if grid <= 1 or any(part.low % grid for part in parts):
        grid = 1
    change: dict[int, int] = {}
    slack = 0
    for part in parts:
        size = part.high - part.low
        rounded = -(-size // grid) * grid
        slack |= rounded - size
        change[part.begin] = change.get(part.begin, 0) + rounded
        change[part.end] = change.get(part.end, 0) - rounded
    if slack:
        return _without_topmost_slack(blocks, grid)
    live = largest = 0
    for time in sorted(change):
        live += change[time]
        largest = max(largest, live)
    return largest


def _without_topmost_slack(blocks: Sequence[Block], grid: int) -> int:
    """Return the bound where some size is no multiple of the grid: the topmost part's end is not rounded."""
    parts = sorted((part.begin, part.end, part.high - part.low) for block in blocks for part in block.parts)
    live = largest = 0
    ending: list[tuple[int, int]] = []
    wasted: list[tuple[int, int]] = []
    for begin, end, size in parts:
        while ending and ending[0][0] <= begin:
            live -= heapq.heappop(ending)[1]
        rounded = -(-size // grid) * grid
        live += rounded
        heapq.heappush(ending, (end, rounded))
        heapq.heappush(wasted, (size - rounded, end))
        while wasted[0][1] <= begin:
            heapq.heappop(wasted)
        largest = max(largest, live + wasted[0][0])
    return largest
