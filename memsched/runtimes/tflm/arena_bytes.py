"""Which value's byte each byte of an arena holds, as maximal runs: what a replay of a model writes and reads."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterable, Sequence

__all__ = ["GARBAGE", "ArenaBytes", "Run", "cut", "joined", "merged", "replaced"]

Run = tuple[int, int, int, int]
"""Bytes [low, high) hold the bytes of a value, by its number, from the given one on."""

GARBAGE = 0
"""The number of no value: what nothing may read."""

_begin = operator.itemgetter(0)


def joined(runs: Iterable[Run]) -> list[Run]:
    """Return runs, given in order, as few as can be; those of garbage begin at its byte 0."""
    found: list[Run] = []
    for low, high, value, begin in runs:
        if low >= high:
            continue
        if found:
            start, end, last, first = found[-1]
            if end == low and last == value and (value == GARBAGE or first + end - start == begin):
                found[-1] = (start, high, value, first)
                continue
        found.append((low, high, value, begin if value != GARBAGE else 0))
    return found


def cut(runs: Sequence[Run], low: int, high: int) -> list[Run]:
    """Return what bytes [low, high) hold, counted from ``low``."""
    index = max(0, bisect.bisect_right(runs, low, key=_begin) - 1)
    found = []
    while index < len(runs) and runs[index][0] < high:
        start, end, value, begin = runs[index]
        first, last = max(start, low), min(end, high)
        if first < last:
            found.append((first - low, last - low, value, begin + first - start if value != GARBAGE else 0))
        index += 1
    return found


def replaced(runs: Sequence[Run], low: int, new: Sequence[Run]) -> list[Run]:
    """Return ``runs`` with ``new``, which count from ``low``, in place of what was there."""
    if not new:
        return list(runs)
    first, last, changed = _around(runs, low, new)
    return [*runs[:first], *changed, *runs[last:]]


def _around(runs: Sequence[Run], low: int, new: Sequence[Run]) -> tuple[int, int, list[Run]]:
    """Return what `replaced` puts in the place of which runs: of many, it touches those around ``new`` alone."""
    high = low + new[-1][1]
    first = max(0, bisect.bisect_right(runs, low, key=_begin) - 2)
    last = bisect.bisect_right(runs, high, key=_begin) + 1
    near = runs[first:last]
    before = [(start, min(end, low), value, begin) for start, end, value, begin in near if start < low]
    moved = [(low + start, low + end, value, begin) for start, end, value, begin in new]
    behind = [
        (max(start, high), end, value, begin + max(start, high) - start)
        for start, end, value, begin in near
        if end > high
    ]
    return first, last, joined([*before, *moved, *behind])


def merged(one: Sequence[Run], other: Sequence[Run]) -> list[Run]:
    """Return what two contents of the same bytes have in common, garbage elsewhere."""
    places = sorted({edge for run in (*one, *other) for edge in run[:2]})
    found = []
    for low, high in itertools.pairwise(places):
        first, second = cut(one, low, high), cut(other, low, high)
        same = first == second and len(first) == 1
        found.append((low, high, first[0][2], first[0][3]) if same else (low, high, GARBAGE, 0))
    return joined(found)


class ArenaBytes:
    """The bytes of an arena, garbage at first."""

    def __init__(self, size: int) -> None:
        self.runs: list[Run] = [(0, size, GARBAGE, 0)] if size else []
        self.written: list[tuple[int, int]] | None = None
        """Where something was written, if that is asked for."""

    def read(self, low: int, high: int) -> list[Run]:
        """Return what bytes [low, high) hold, counted from ``low``."""
        return joined(cut(self.runs, low, high))

    def write(self, low: int, new: Sequence[Run]) -> None:
        """Let the bytes from ``low`` on hold ``new``, counted from there."""
        if not new:
            return
        if self.written is not None:
            self.written.append((low, low + new[-1][1]))
        first, last, changed = _around(self.runs, low, new)
        self.runs[first:last] = changed
