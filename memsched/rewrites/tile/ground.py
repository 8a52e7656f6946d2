"""What searches for groups to cut have in common: the graph with what is known of its intervals."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Sequence

from memsched.ops.rules import Geometry, WholeAxis
from memsched.rewrites.tile.choices import TilingChoices
from memsched.rewrites.tile.local import Interval, Intervals, looks_at_one

__all__ = ["TilingGround"]

_NEAR_BOUNDARIES = 12
"""How many of the places where a group may begin or end are kept within `_REACH`."""


_REACH = 24
"""Places to each side that boundaries are compared with."""


def _collapses(geometry: Geometry) -> bool:
    """Whether an op needs all of an axis that its output does not have: a reduction over an image."""
    shape = geometry.shape
    return any(
        isinstance(one.rule, WholeAxis)
        and geometry.shapes[position][axis] > 1 == (shape[axis] if axis < len(shape) else 1)
        for position, maps in geometry.operands.items()
        for axis, one in enumerate(maps)
    )


def _thinned(places: list[int], residues: Sequence[int]) -> list[int]:
    """Return those of ``places`` that have few better ones near them."""
    kept = []
    for place in places:
        near = places[bisect.bisect_left(places, place - _REACH) : bisect.bisect(places, place + _REACH)]
        better = sum((residues[other], other) < (residues[place], place) for other in near)
        if better < _NEAR_BOUNDARIES:
            kept.append(place)
    return kept


class TilingGround:
    """The graph that is searched, in order of execution.

    Attributes:
        intervals: What judges ways of cutting.
        footprints: Bytes per op.
    """

    def __init__(self, intervals: Intervals) -> None:
        self.intervals = intervals
        self.footprints = list(intervals.footprints)
        self._known: dict[tuple[int, int], Interval] = {}
        self._choices: dict[tuple[int, int], TilingChoices] = {}

    def interval(self, first: int, last: int) -> Interval:
        """Return what is known of an interval without cutting it."""
        if (first, last) not in self._known:
            self._known[first, last] = self.intervals.interval(first, last)
        return self._known[first, last]

    def choices(self, first: int, last: int) -> TilingChoices:
        """Return the ways of cutting an interval."""
        if (first, last) not in self._choices:
            self._choices[first, last] = TilingChoices(self.intervals, first, last)
        return self._choices[first, last]

    @functools.cached_property
    def wide(self) -> list[int]:
        """Ops that look at more than single elements, of as many ops, the first ones."""
        looking = (not looks_at_one(geometry) for geometry in self.intervals.geometries.values())
        return [0, *itertools.accumulate(looking)]

    @functools.cached_property
    def kept(self) -> list[int]:
        """Bytes that are kept for as many ops, the first ones."""
        return [0, *itertools.accumulate(self.intervals.kept_by_op())]

    @functools.cached_property
    def ends(self) -> dict[int, str]:
        """The ops that end a group, with the reasons."""
        return dict(self.intervals.refusals())

    @functools.cached_property
    def boundaries(self) -> list[int]:
        """The places between ops where little is live, and those beside ops that end a group by themselves."""
        residues, count = self.intervals.residues, len(self.footprints)
        low = []
        for place in range(1, count):
            before, here, after = residues[place - 1 : place + 2]
            # Of places with equally much live, the first and the last.
            if here <= before and here <= after and not before == here == after:
                low.append(place)
        low = _thinned(low, residues)
        for op, geometry in self.intervals.geometries.items():
            if op in self.ends or (isinstance(geometry, Geometry) and _collapses(geometry)):
                low += [op, op + 1]
        return sorted({0, *low, count})
