"""Addresses of a segment's buffers in an arena of a given size, around the input that dies from its first pixel on.

Buffers that begin below the input have due dates: where they end at the latest. In the order of these dates they lie as
low as possible, and if any order fits, this one does (Jackson's rule). Those that do not fit lie above the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from memsched.codegen.streaming.segment import StreamBuffer, StreamSegment

__all__ = ["Arrangement", "arrangements"]

Arrangement = Mapping[StreamBuffer, int]
"""Per buffer its address."""

_MOST_STATES: Final = 64
"""Ends of what lies below the input that are kept beside each other: with 512, no arena of eight was smaller."""

_MOST_PARTS: Final = 4
"""Parts below the input that are tried with the map that leaves among them, and without it."""


def arrangements(segment: StreamSegment, arena: int, place: int | None, most: int) -> list[Arrangement]:
    """Return addresses of all buffers, at most one result for each place of the map that leaves.

    Args:
        arena: Bytes.
        place: The address of the input; None where it does not lie in the arena.
        most: Results, at most.
    """
    found: dict[int | None, Arrangement] = {}
    options = _free(segment, arena) if place is None else _around(segment, arena, place)
    for option in options:
        leaving = next((address for one, address in option.items() if one.leaves), None)
        found.setdefault(leaving, option)
        if len(found) == most:
            break
    return list(found.values())


def _free(segment: StreamSegment, arena: int) -> Iterable[Arrangement]:
    """Yield addresses without an input: the map that leaves lies lowest, or highest."""
    lowest = _stacked(sorted(segment.buffers, key=lambda one: (not one.leaves, -one.size)), 0)
    if _end(lowest) <= arena:
        yield lowest
        others = _stacked([one for one in lowest if not one.leaves], 0)
        for one in (one for one in lowest if one.leaves):
            highest = arena - one.size
            if highest >= _end(others):
                yield {**others, one: highest}


def _around(segment: StreamSegment, arena: int, place: int) -> Iterable[Arrangement]:
    """Yield addresses with the input at ``place``."""
    end = place + segment.input_size
    if end > arena:
        return
    ordered = sorted(segment.buffers, key=lambda one: (one.size - one.ahead, one.size, one.maps))
    for below in _lower_parts(ordered, place, end, arena):
        low = _stacked(below, 0)
        above = [one for one in ordered if one not in low]
        begin = max(end, _end(low))
        high = _stacked(sorted(above, key=lambda one: not one.leaves), begin)
        if not above:
            yield low
            yield _latest(below, arena, place)
        elif _end(high) <= arena:
            yield {**low, **high}
            yield from _turned(below, above, low, begin, arena, place)


def _turned(
    below: Sequence[StreamBuffer], above: Sequence[StreamBuffer], low: Arrangement, begin: int, arena: int, place: int
) -> Iterable[Arrangement]:
    """Yield the same parts with the map that leaves as high as possible in its part."""
    leaving = next((one for one in above if one.leaves), None)
    if leaving is not None:
        others = _stacked([one for one in above if one is not leaving], begin)
        highest = arena - leaving.size
        if highest >= _end(others):
            yield {**low, **others, leaving: highest}
        return
    high = _stacked(above, begin)
    yield {**_latest(below, begin, place), **high}


def _lower_parts(ordered: Sequence[StreamBuffer], place: int, end: int, arena: int) -> Iterable[Sequence[StreamBuffer]]:
    """Yield which buffers begin below the input, the parts with the most bytes first, if the others fit above it."""
    # By the end of what lies below: which buffers that is, as bits, and the bytes of those that lie above.
    states: dict[int, tuple[int, int]] = {0: (0, 0)}
    for number, one in enumerate(ordered):
        found: dict[int, tuple[int, int]] = {}
        for top, (kept, above) in states.items():
            if top + one.ahead <= place:
                _keep_least(found, top + one.size, (kept | 1 << number, above))
            if max(top, end) + above + one.size <= arena:
                _keep_least(found, top, (kept, above + one.size))
        states = dict(sorted(found.items(), reverse=True)[:_MOST_STATES])
    fitting = [
        [one for number, one in enumerate(ordered) if kept >> number & 1]
        for top, (kept, above) in sorted(states.items(), reverse=True)
        if not above or max(top, end) + above <= arena
    ]
    for leaves_above in (False, True):
        alike = [one for one in fitting if any(buffer.leaves for buffer in one) != leaves_above]
        yield from alike[:_MOST_PARTS]


def _keep_least(states: dict[int, tuple[int, int]], top: int, state: tuple[int, int]) -> None:
    if top not in states or state[1] < states[top][1]:
        states[top] = state


def _latest(below: Sequence[StreamBuffer], top: int, place: int) -> Arrangement:
    """Return addresses of buffers that begin below the input, each as high as the next one and the input permit."""
    found: dict[StreamBuffer, int] = {}
    for one in reversed(below):
        found[one] = top = min(top - one.size, place - one.ahead)
    return found


def _stacked(buffers: Iterable[StreamBuffer], begin: int) -> dict[StreamBuffer, int]:
    found: dict[StreamBuffer, int] = {}
    for one in buffers:
        found[one] = begin
        begin += one.size
    return found


def _end(arrangement: Arrangement) -> int:
    return max((address + one.size for one, address in arrangement.items()), default=0)
