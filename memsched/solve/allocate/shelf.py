"""One memory that blocks are put into one by one, each into the lowest gap that is large enough."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.graph.packing import Block

__all__ = ["Shelf"]

_BUCKETS = 256


class Shelf:
    """The blocks that lie in a memory of ``size`` bytes, found by the time at which they are in use."""

    def __init__(self, blocks: Sequence[Block], size: int) -> None:
        self._blocks = blocks
        self._size = size
        self._offset: dict[int, int] = {}
        times = [time for block in blocks for part in block.parts for time in (part.begin, part.end)]
        self._first = min(times, default=0)
        self._width = max(1, -(-(max(times, default=0) - self._first) // _BUCKETS))
        self._buckets: list[list[int]] = [[] for _ in range(_BUCKETS + 1)]

    def add(self, block: int, offset: int) -> None:
        """Put a block at an address that is free for it."""
        self._offset[block] = offset
        for bucket in self._near(block):
            self._buckets[bucket].append(block)

    def find(self, block: int) -> int | None:
        """Return the lowest address at which a block overlaps no other; None when there is none."""
        wanted = self._blocks[block]
        taken: list[tuple[int, int]] = []
        for other in dict.fromkeys([other for bucket in self._near(block) for other in self._buckets[bucket]]):
            at = self._offset[other]
            taken += [
                (at + theirs.low - mine.high, at + theirs.high - mine.low)
                for mine in wanted.parts
                for theirs in self._blocks[other].parts
                if mine.begin < theirs.end and theirs.begin < mine.end
            ]
        taken.sort()
        address = 0
        for low, high in taken:
            if low >= address:
                break
            if high > address:
                address = -(-high // wanted.alignment) * wanted.alignment
        return address if address + wanted.size <= self._size else None

    def _near(self, block: int) -> Sequence[int]:
        """Return the buckets of time in which a block is in use, each once."""
        found: dict[int, None] = {}
        for part in self._blocks[block].parts:
            if part.begin < part.end:
                first, last = part.begin - self._first, part.end - 1 - self._first
                found.update(dict.fromkeys(range(first // self._width, last // self._width + 1)))
        return list(found)
