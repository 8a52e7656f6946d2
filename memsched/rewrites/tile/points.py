"""What groups achieve together: for every peak the cheapest ways of cutting a graph, by a dynamic program."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.lowering.prices import NOTHING_KEPT, Kept, Prices
from memsched.rewrites.tile.local import Group, GroupCost

__all__ = ["FrontierPoint", "TilingPoints"]

_PEAKS_TRIED = 24
"""So many of the possible peaks are tried where more than the peak counts."""

_PRICES_OF_WORK: Final = (None, 65_536.0, 8_192.0, 0.0)
"""Bytes that all extra work that is permitted is worth: pieces may cost work or bytes that are kept."""


class FrontierPoint(FrozenValue, frozen=True):
    """Groups with the peak that they lead to, in bytes, and their extra multiply-accumulates.

    Attributes:
        beside: Bytes that the runtime requires for the model beyond the peak, as far as they are known.
        time: Extra, as `Pace` counts it; 0 where nothing is known of it.
    """

    peak: int
    extra_macs: int
    groups: tuple[Group, ...]
    beside: int = 0
    time: float = 0.0

    @property
    def required(self) -> int:
        """What the runtime requires in all, bytes."""
        return self.peak + self.beside


def _spread(values: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the values, evenly from the first to the last."""
    if len(values) <= most:
        return list(values)
    return [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]


def _peak_of(judged: GroupCost) -> int:
    return judged.peak


class TilingPoints:
    """The points that the ways of cutting known so far give.

    Attributes:
        curves: Per interval, first and last op, what its ways cost.
        uncut: The graph as it is.

    Args:
        footprints: Of the graph's ops in their order, bytes.
        prices: What the runtime keeps for every op; None for nothing.
        most: Extra multiply-accumulates permitted.
        most_time: Extra time permitted.
    """

    def __init__(
        self, footprints: Sequence[int], prices: Prices | None, most: int, most_time: float = math.inf
    ) -> None:
        self._footprints, self._prices, self._most, self._most_time = footprints, prices, most, most_time
        self._timed = prices is not None and prices.pace is not None
        self._most_work = most_time if self._timed and most_time < math.inf else most
        self.curves: dict[tuple[int, int], list[GroupCost]] = {}
        self._stairs: dict[tuple[int, int], list[GroupCost]] = {}
        self._levels = sorted(set(footprints))
        self._known: list[FrontierPoint] | None = None
        self._last_least: tuple[int, FrontierPoint] | None = None
        self.uncut = self._point(max(footprints, default=0), 0, ())

    def add(self, interval: tuple[int, int], judged: GroupCost) -> None:
        """Take up another way of cutting an interval."""
        self.curves.setdefault(interval, []).append(judged)
        at = bisect.bisect_left(self._levels, judged.peak)
        if at == len(self._levels) or self._levels[at] != judged.peak:
            self._levels.insert(at, judged.peak)
        self._climb(self._stairs.setdefault(interval, []), judged)
        self._known = self._last_least = None

    def drop(self, interval: tuple[int, int], group: Group | None) -> None:
        """Forget a way of cutting an interval; None: all of them."""
        self.curves[interval] = [
            one for one in self.curves.get(interval, ()) if group is not None and one.group != group
        ]
        self._levels = sorted({*self._footprints, *(one.peak for curve in self.curves.values() for one in curve)})
        stairs = self._stairs[interval] = []
        for one in self.curves[interval]:
            self._climb(stairs, one)
        self._known = self._last_least = None

    def _climb(self, stairs: list[GroupCost], judged: GroupCost) -> None:
        """Take up a way among those of an interval that cost less work than all of lower peaks, by rising peaks."""
        at = bisect.bisect_right(stairs, judged.peak, key=lambda one: one.peak)
        work = self.work(judged)
        if at and self.work(stairs[at - 1]) <= work:
            return
        begin = at - 1 if at and stairs[at - 1].peak == judged.peak else at
        end = next((place for place in range(at, len(stairs)) if self.work(stairs[place]) < work), len(stairs))
        stairs[begin:end] = [judged]

    def _peaks(self) -> list[int]:
        """Return the peaks that are possible at all, ascending."""
        return self._levels

    def least(self, most: int) -> FrontierPoint:
        """Return the point that requires least with at most ``most`` extra work, which falls as the peak rises."""
        if self._last_least is not None and self._last_least[0] == most:
            return self._last_least[1]
        self._last_least = most, self._found_least(most)
        return self._last_least[1]

    def _found_least(self, most: int) -> FrontierPoint:
        if self._prices is not None:
            points = [one for one in self._candidates() if one.extra_macs <= most and one.time <= self._most_time]
            return min((self.uncut, *points), key=lambda one: (one.required, one.extra_macs))
        peaks = self._peaks()
        low, high = 0, len(peaks) - 1
        best = self.uncut
        while low <= high:
            middle = (low + high) // 2
            point = self._cheapest(peaks[middle])
            if point is not None and point.extra_macs <= most:
                best, high = point, middle - 1
            else:
                low = middle + 1
        return best

    def _candidates(self) -> list[FrontierPoint]:
        """Return points for peaks from the least to the largest, each with a few prices for extra work.

        Their work rises, for some beyond what is permitted; they stay the same until another way is known.
        """
        if self._known is None:
            found: dict[tuple[Group, ...], FrontierPoint] = {}
            peaks = self._peaks()
            reached = bisect.bisect_left(peaks, True, key=lambda peak: self._cheapest(peak) is not None)
            for peak in _spread(peaks[reached:], _PEAKS_TRIED):
                for price in _PRICES_OF_WORK:
                    point = self._cheapest(peak, None if price is None else price / max(1, self._most_work))
                    if point is None:
                        break
                    found.setdefault(point.groups, point)
            points = sorted(found.values(), key=lambda one: (self.work(one), one.required, one.peak))
            self._known = points
        return self._known

    def work(self, judged: GroupCost | FrontierPoint) -> float:
        """Return what is spent: time, where that is known."""
        return judged.time if self._timed else judged.extra_macs

    def _point(
        self,
        peak: int,
        extra_macs: int,
        groups: tuple[Group, ...],
        kept: Kept = NOTHING_KEPT,
        time: float = 0.0,
    ) -> FrontierPoint:
        beside = 0 if self._prices is None else self._prices.required(peak, kept) - peak
        return FrontierPoint(peak, extra_macs, groups, beside, time)

    def _cheapest(self, peak: int, price: float | None = None) -> FrontierPoint | None:
        """Return the least cost with which no step exceeds ``peak``: a shortest path along the order.

        Args:
            price: What a unit of work costs in bytes that are kept; None: work is all that costs.
        """
        ending = self._stairs_at(peak) if price is None else self._priced_at(peak, price)
        count = len(self._footprints)
        work: list[float] = [0.0] * (count + 1)
        taken: list[tuple[int, GroupCost | None]] = [(0, None)] * (count + 1)
        for op in range(count):
            work[op + 1] = work[op] if self._footprints[op] <= peak else math.inf
            taken[op + 1] = op, None
            for first, judged, cost in ending.get(op, ()):
                through = work[first] + cost
                if through < work[op + 1]:
                    work[op + 1], taken[op + 1] = through, (first, judged)
        if math.isinf(work[count]):
            return None
        groups: list[Group] = []
        high, at, macs, kept, time = 0, count, 0, NOTHING_KEPT, 0.0
        while at:
            before, chosen = taken[at]
            if chosen is None:
                high = max(high, self._footprints[at - 1])
            else:
                groups.append(chosen.group)
                high = max(high, chosen.peak)
                macs, kept, time = macs + chosen.extra_macs, kept + chosen.kept, time + chosen.time
            at = before
        return self._point(high, macs, tuple(reversed(groups)), kept, time)

    def _stairs_at(self, peak: int) -> dict[int, list[tuple[int, GroupCost, float]]]:
        """Return by last op, per interval, the first op, the way of least work within ``peak``, and that work."""
        ending: dict[int, list[tuple[int, GroupCost, float]]] = {}
        timed = self._timed
        for (first, last), stairs in self._stairs.items():
            at = bisect.bisect_right(stairs, peak, key=_peak_of)
            if at:
                least = stairs[at - 1]
                ending.setdefault(last, []).append((first, least, least.time if timed else least.extra_macs))
        return ending

    def _priced_at(self, peak: int, price: float) -> dict[int, list[tuple[int, GroupCost, float]]]:
        """Return the same of the ways that cost least where a unit of work costs ``price`` bytes that are kept."""

        def cost(judged: GroupCost) -> float:
            return judged.kept.persistent + price * self.work(judged)

        ending: dict[int, list[tuple[int, GroupCost, float]]] = {}
        for (first, last), curve in self.curves.items():
            fitting = [judged for judged in curve if judged.peak <= peak]
            if fitting:
                least = min(fitting, key=lambda one: (cost(one), one.peak))
                ending.setdefault(last, []).append((first, least, cost(least)))
        return ending

    def frontier(self) -> Iterator[FrontierPoint]:
        """Return points of rising work that require ever less; some may do more work than is permitted."""
        least = math.inf
        points: list[FrontierPoint] = []
        if self._prices is not None:
            for one in self._candidates():
                if one.required < least:
                    points.append(one)
                    least = one.required
            return iter(points)
        for peak in self._peaks():
            point = self._cheapest(peak)
            if point is not None and point.extra_macs < least:
                points.append(point)
                least = point.extra_macs
        return reversed(points)
