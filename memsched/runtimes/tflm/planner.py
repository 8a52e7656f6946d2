"""TensorFlow Lite Micro's own planner, repeated: where its GreedyMemoryPlanner lays buffers.

Source: ``tensorflow/lite/micro/memory_planner/greedy_memory_planner.cc``. Buffers whose offset is given come first,
in the order of their indices; the rest follows by falling size, of equal sizes the later index first, each at the
lowest gap that is large enough between those placed that live at the same time.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue

__all__ = ["TflmRequest", "greedy_offsets", "head_bytes"]

_MOST_PAIRS = 5_000_000
"""Pairs that live at the same time up to which each buffer's are listed; above, every buffer looks at all others."""


class TflmRequest(FrozenValue, frozen=True):
    """A buffer that the planner is asked for.

    Attributes:
        size: Bytes, rounded up to `ALIGNMENT`.
        first: The time from which it is needed.
        last: The time until which it is needed, included.
        offset: Where an offline plan lays it; None where the planner chooses.
    """

    size: int
    first: int
    last: int
    offset: int | None = None


def greedy_offsets(requests: Sequence[TflmRequest]) -> tuple[int, ...]:
    """Return per request the offset that the planner gives it, in time linear in the pairs that live at once.

    Offsets that are given are taken as they are, overlapping or not, as the planner does.
    """
    given = [index for index, request in enumerate(requests) if request.offset is not None]
    free = [index for index, request in enumerate(requests) if request.offset is None]
    free.sort(key=lambda index: (-requests[index].size, -index))
    near = _neighbours(requests)
    offsets: dict[int, int] = {index: requests[index].offset or 0 for index in given}
    # Only kept where neighbours are not listed: what is placed, by offset.
    placed = sorted((offset, index) for index, offset in offsets.items())
    for index in free:
        if near is None:
            offsets[index] = _lowest_gap(index, requests, placed)
            bisect.insort(placed, (offsets[index], index))
        else:
            known = sorted((offsets[other], other) for other in near[index] if other in offsets)
            offsets[index] = _lowest_gap(index, requests, known)
    return tuple(offsets[index] for index in range(len(requests)))


def _neighbours(requests: Sequence[TflmRequest]) -> list[list[int]] | None:
    """Return per request those that live at some time with it; None where they are too many to list."""
    near: list[list[int]] = [[] for _ in requests]
    active: dict[int, None] = {}
    ending: list[tuple[int, int]] = []
    pairs = 0
    for index in sorted(range(len(requests)), key=lambda index: requests[index].first):
        while ending and ending[0][0] < requests[index].first:
            del active[heapq.heappop(ending)[1]]
        pairs += len(active)
        if pairs > _MOST_PAIRS:
            return None
        for other in active:
            near[index].append(other)
            near[other].append(index)
        active[index] = None
        heapq.heappush(ending, (requests[index].last, index))
    return near


def _lowest_gap(index: int, requests: Sequence[TflmRequest], placed: Sequence[tuple[int, int]]) -> int:
    """Return the lowest offset at which a request meets none of ``placed``, which holds offsets and requests."""
    wanted = requests[index]
    size, first, last = wanted.size, wanted.first, wanted.last
    end = 0
    for begin, number in placed:
        other = requests[number]
        if other.first > last or other.last < first:
            continue
        if begin - end >= size:
            break
        end = max(end, begin + other.size)
    return end


def head_bytes(requests: Sequence[TflmRequest], offsets: Sequence[int]) -> int:
    """Return the head of the arena: the highest end of a buffer, bytes."""
    return max([offset + request.size for request, offset in zip(requests, offsets, strict=True)], default=0)
