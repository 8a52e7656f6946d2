"""Which blocks meet in time, and which distances between their addresses that forbids."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import replace

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.graph.packing import Block, BlockPart

__all__ = ["Conflicts", "check_given", "conflicts_of", "is_plain", "overlapping_pairs", "without_overlaps"]


class Conflicts(FrozenValue, frozen=True):
    """Per block the others that are in use at the same time.

    Attributes:
        near: Plain blocks to a plain block: one of them lies wholly below the other.
        apart: Where one of the two is not plain, triples (other, low, high): the block's address minus the other's
            may not lie strictly between ``low`` and ``high``.
    """

    near: list[list[int]]
    apart: list[list[tuple[int, int, int]]]

    def neighbours(self, index: int) -> list[int]:
        """Return every block that is in use at the same time as block ``index``, each once."""
        if not self.apart[index]:
            return self.near[index]
        return list(dict.fromkeys([*self.near[index], *[other for other, _, _ in self.apart[index]]]))


def is_plain(block: Block) -> bool:
    """Whether all bytes of ``block`` are in use from its first time to its last."""
    return len(block.parts) == 1 and block.parts[0].low == 0 and block.parts[0].high == block.size


def without_overlaps(blocks: Sequence[Block]) -> list[Block]:
    """Return ``blocks`` without empty parts, and without parts of one block that are the same bytes at a time."""
    result = []
    for block in blocks:
        parts = tuple([part for part in block.parts if part.begin < part.end and part.low < part.high])
        if not _one_after_the_other(parts) and any(
            a.begin < b.end and b.begin < a.end and a.low < b.high and b.low < a.high
            for a, b in itertools.combinations(parts, 2)
        ):
            parts = _sliced(parts)
        result.append(block if parts == block.parts else replace(block, parts=parts))
    return result


def _one_after_the_other(parts: Sequence[BlockPart]) -> bool:
    """Whether no two parts are in use at the same time, as those between the gaps of a buffer from a file."""
    ordered = sorted(parts, key=lambda part: part.begin)
    return all(one.end <= other.begin for one, other in itertools.pairwise(ordered))


def _sliced(parts: Sequence[BlockPart]) -> tuple[BlockPart, ...]:
    """Return the bytes in use between any two changes, joined over time where they stay the same."""
    found: list[BlockPart] = []
    times = sorted({time for part in parts for time in (part.begin, part.end)})
    open_ranges: dict[tuple[int, int], int] = {}
    for begin, end in itertools.pairwise(times):
        ranges: dict[tuple[int, int], int] = {}
        low = high = -1
        for bottom, top in [*sorted((p.low, p.high) for p in parts if p.begin <= begin and p.end >= end), (-1, -1)]:
            if low < high and 0 <= bottom <= high:
                high = max(high, top)
                continue
            if low < high:
                since = open_ranges.get((low, high))
                ranges[low, high] = begin if since is None else since
            low, high = bottom, top
        found += [BlockPart(since, begin, *key) for key, since in open_ranges.items() if key not in ranges]
        open_ranges = ranges
        if end == times[-1]:
            found += [BlockPart(since, end, *key) for key, since in open_ranges.items()]
    return tuple(found)


def overlapping_pairs(blocks: Sequence[Block]) -> int:
    """Return how many pairs of parts are in use at the same time."""
    parts = [part for block in blocks for part in block.parts]
    begins = sorted([part.begin for part in parts])
    return sum([bisect.bisect_left(begins, part.end) for part in parts]) - len(parts) * (len(parts) + 1) // 2


def conflicts_of(blocks: Sequence[Block]) -> Conflicts:
    """Return the conflicts of ``blocks``, whose parts must not be empty, by a sweep over the times."""
    near: list[list[int]] = [[] for _ in blocks]
    apart: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    plain = [is_plain(block) for block in blocks]
    parts = [(part, index) for index, block in enumerate(blocks) for part in block.parts]
    active: dict[int, tuple[BlockPart, int]] = {}
    ending: list[tuple[int, int]] = []
    for number in sorted(range(len(parts)), key=lambda i: parts[i][0].begin):
        part, index = parts[number]
        while ending and ending[0][0] <= part.begin:
            del active[heapq.heappop(ending)[1]]
        for other_part, other in active.values():
            if plain[index] and plain[other]:
                near[index].append(other)
                near[other].append(index)
            elif index != other:
                low, high = other_part.low - part.high, other_part.high - part.low
                apart[index].append((other, low, high))
                apart[other].append((index, -high, -low))
        active[number] = (part, index)
        heapq.heappush(ending, (part.end, number))
    return Conflicts(near, apart)


def check_given(blocks: Sequence[Block]) -> None:
    """Check that the addresses that ``blocks`` must have are possible together.

    Raises:
        UsageError: One is negative or no multiple of the block's alignment, or two blocks would share bytes.
    """
    numbers = [index for index, block in enumerate(blocks) if block.offset is not None]
    fixed = [blocks[index] for index in numbers]
    given = [block.offset or 0 for block in fixed]
    for number, block, offset in zip(numbers, fixed, given, strict=True):
        if offset < 0 or offset % block.alignment:
            raise UsageError(
                f"block {number} must lie at {offset}, which is no multiple of {block.alignment}",
                code="fixed-misaligned",
            )
    conflicts = conflicts_of(fixed)
    for index, offset in enumerate(given):
        near = [(other, -fixed[index].size, fixed[other].size) for other in conflicts.near[index]]
        for other, low, high in [*near, *conflicts.apart[index]]:
            if low < offset - given[other] < high:
                pair = f"{numbers[index]} and {numbers[other]}"
                raise UsageError(
                    f"blocks {pair} must lie at {offset} and {given[other]}, where they overlap", code="fixed-overlap"
                )
