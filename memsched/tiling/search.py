"""Which groups to cut, and how: the least peak under a limit of extra work, or the least extra work under a budget.

Intervals of the order of execution are judged in pieces one by one (`local`); a dynamic program over the order picks
those that together give the least peak. What is tried next is what could lower the peak now: intervals around its step,
and ways near those in use. So the search can be interrupted at any time and resumed, and its frontier only improves.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.graph.prices import Prices
from memsched.regions.rules import Geometry, Refusal, WholeAxis
from memsched.search.run import Run
from memsched.targets.model import Target
from memsched.tiling.choices import TilingChoices
from memsched.tiling.local import GroupCost, Interval, Intervals, looks_at_one
from memsched.tiling.pieces import TilingGroup
from memsched.tiling.points import FrontierPoint, TilingPoints

__all__ = ["FrontierPoint", "TilingResult", "TilingSearch", "search"]

_LONGEST = 48
_LONGEST_OF_ALL = 96
"""Ops in a group that look at more than single elements: in longer groups halos grow, and pieces cost too much. Longer
ones are tried where nothing else is left, as for a tensor that is kept over several cells.
"""

_MOST_OPS = 120
"""Ops in a group, all counted."""

_NEAR_BOUNDARIES = 12
"""How many of the places where a group may begin or end are kept within a group's reach."""

_NARROWER = 5
"""How often what may be live where a long group begins and ends is halved, from the peak on."""

_LITTLE = 1 / 16
"""Share of the memory that a long group saves at the most which its ops in pieces may cost for it to be tried first."""

_STEPS_AT_ONCE = 4
"""Steps at the peak that intervals are looked for around at a time."""

_WORK_PER_SECOND = 20_000
"""Ops of pieces that an idle machine judges in a second."""

_LEAST_EFFORT = 1.0
"""Work that every search does, whatever the time: the first finds are often small, and much better ones soon follow."""

_LEAST_EFFORT_FOR_NOTHING = 2.0
"""The same while nothing has been found: a peak that all layers share falls only when all of them are in pieces."""

_WORK_BESIDE = 10
"""The fixed cost of judging a way of cutting, in ops of pieces."""

_MOST_DROPPED = 3
"""Ways of cutting the same ops that may fail before all of them are given up."""

_OPS_PER_WORK = 50
"""Ops of the graph that can be scanned for an interval in the time that one op of a piece takes."""


@dataclass(frozen=True, slots=True)
class TilingResult:
    """What a search found.

    Attributes:
        best: The point that was asked for; without groups where cutting does not help.
        frontier: Falling requirements with rising work; the first has no groups, or costs nothing.
        refusals: Names of ops at which groups end, with the reasons.
        judged: How many ways of cutting were judged.
        exhausted: Nothing was left to try before the time was up.
        reached: The search was left at a peak that it was asked to be left at.
    """

    best: FrontierPoint
    frontier: tuple[FrontierPoint, ...]
    refusals: tuple[tuple[str, str], ...]
    judged: int
    exhausted: bool
    reached: bool = False


def search(
    graph: Graph,
    target: Target,
    dialect: Dialect,
    run: Run,
    *,
    most_macs: int,
    budget: int | None = None,
) -> TilingResult:
    """Return the groups of ``graph`` to cut, as `TilingSearch` finds them by the end of ``run``."""
    one = TilingSearch(graph, target, dialect, run, most_macs=most_macs, budget=budget)
    return one.run(run.deadline(), run.deadline(), run.effort() if run.limits.time_limit != 0 else 0.0)


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
        near = places[bisect.bisect_left(places, place - _LONGEST // 2) : bisect.bisect(places, place + _LONGEST // 2)]
        better = sum((residues[other], other) < (residues[place], place) for other in near)
        if better < _NEAR_BOUNDARIES:
            kept.append(place)
    return kept


class TilingSearch:
    """A search for the groups of ``graph`` to cut, which may be left and taken up again.

    Args:
        graph: Not lowered, its ops in order of execution.
        run: Who may end it with what was found, and who is told the best peak whenever it or its work changes; when
            it ends by itself is said to `TilingSearch.run`.
        most_macs: Extra multiply-accumulates permitted.
        budget: Bytes that may be required: then the least work that reaches them is sought, within ``most_macs``.
        enough: Whether a point without extra work, which is within the budget, ends the search; without it any does.
        prices: What the runtime keeps for every op: what is made small is what it requires in all. None: the peak.
        most_time: Extra time permitted, as the prices count it.

    Attributes:
        intervals: What judges ways of cutting.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        run: Run,
        *,
        most_macs: int,
        budget: int | None = None,
        enough: Callable[[FrontierPoint], bool] | None = None,
        prices: Prices | None = None,
        most_time: float = math.inf,
    ) -> None:
        self.intervals = intervals = Intervals(graph, target, dialect, prices)
        self._most, self._budget = most_macs, budget
        self._footprints = list(intervals.footprints)
        self._known: dict[tuple[int, int], Interval] = {}
        self._choices: dict[tuple[int, int], TilingChoices] = {}
        self._judged: dict[TilingGroup, GroupCost | None] = {}
        self._points = TilingPoints(self._footprints, prices, most_macs, most_time)
        self._opened: set[tuple[int, int]] = set()
        self._work = 0
        self._longest = _LONGEST
        self._best = self._points.uncut
        self._asked = run
        self._enough = enough or (lambda _: True)
        self._dropped: Counter[tuple[int, int]] = Counter()
        self._waiting_ways: Iterator[TilingGroup] | None = None

    @functools.cached_property
    def _wide(self) -> list[int]:
        looking = (not looks_at_one(geometry) for geometry in self.intervals.geometries.values())
        return [0, *itertools.accumulate(looking)]

    @functools.cached_property
    def _kept(self) -> list[int]:
        """Bytes that are kept for as many ops, the first ones."""
        return [0, *itertools.accumulate(self.intervals.kept_by_op())]

    @functools.cached_property
    def _ends(self) -> dict[int, str]:
        return dict(self.intervals.refusals())

    @functools.cached_property
    def _boundaries(self) -> list[int]:
        return self._find_boundaries()

    def _find_boundaries(self) -> list[int]:
        """Return the places between ops where little is live, and those beside ops that end a group by themselves."""
        residues, count = self.intervals.residues, len(self._footprints)
        low = []
        for place in range(1, count):
            before, here, after = residues[place - 1 : place + 2]
            # Of places with equally much live, the first and the last.
            if here <= before and here <= after and not before == here == after:
                low.append(place)
        low = _thinned(low, residues)
        for op, geometry in self.intervals.geometries.items():
            if op in self._ends or (isinstance(geometry, Geometry) and _collapses(geometry)):
                low += [op, op + 1]
        return sorted({0, *low, count})

    @property
    def work(self) -> float:
        """What was done so far, about as much as an idle machine does in so many seconds."""
        return self._work / _WORK_PER_SECOND

    # The loop ------------------------------------------------------------------------------------------------------

    def run(self, pause: float, end: float, effort: float | None = None, *, until: int | None = None) -> TilingResult:
        """Try what may help until nothing is left or the time is up, and return what is found by then.

        Args:
            pause: On the clock of `time.monotonic`: pause then, if there are groups that need less and a fixed least
                amount of work was done.
            end: On that clock, not before ``pause``: end then, if twice as much work has found none.
            effort: Work of all calls together, about as much as an idle machine does in so many seconds; with 0
                nothing is tried.
            until: Bytes: pause as soon as groups are known with which at most that is required. What the search
                does when it is taken up again does not depend on it.
        """
        if self._waiting_ways is None and (effort == 0 or self._asked.stop()):
            return TilingResult(self._best, (self._best,), (), 0, exhausted=False)
        most = math.inf if effort is None else effort * _WORK_PER_SECOND
        if self._waiting_ways is None:
            self._waiting_ways = self._proposals()
        for group in self._waiting_ways:
            if self._asked.stop():
                return self._found(exhausted=False)
            self._judge(group)
            if until is not None and self._best.groups and self._best.required <= until:
                return self._found(exhausted=False, reached=True)
            if self._work >= most or self._late(pause, end):
                return self._found(exhausted=False)
        return self._found(exhausted=True)

    def drop(self, groups: Iterable[TilingGroup]) -> None:
        """Forget ``groups``, which cannot be written, and every way of cutting ops for which that happens often."""
        for group in groups:
            pair = group.ops[0], group.ops[-1]
            self._dropped[pair] += 1
            often = self._dropped[pair] >= _MOST_DROPPED
            self._points.drop(pair, None if often else group)
            self._judged[group] = None
        self._choose()
        # A search that had ended has something to look for again.
        self._waiting_ways = self._proposals()

    def _late(self, pause: float, end: float) -> bool:
        now = time.monotonic()
        if now < pause or self._work < _LEAST_EFFORT * _WORK_PER_SECOND:
            return False
        return self._helps() or (now >= end and self._work >= _LEAST_EFFORT_FOR_NOTHING * _WORK_PER_SECOND)

    def _helps(self) -> bool:
        """Whether there are groups that need less than the graph as it is."""
        if not self._best.groups:
            self._choose()
        return bool(self._best.groups)

    def _proposals(self) -> Iterator[TilingGroup]:
        """Yield groups to be judged; what is judged decides what comes next."""
        while self._footprints:
            self._choose()
            new = False
            for group in self._next_steps():
                new = True
                yield group
            if not new and self._longest == _LONGEST_OF_ALL:
                return
            if not new:
                self._longest = _LONGEST_OF_ALL

    def _next_steps(self) -> Iterator[TilingGroup]:
        # A budget changes nothing here, so that a larger one never costs more; it only ends a search that is done.
        best = self._best
        if self._budget is not None:
            free = self._points.least(0)
            if free.required <= self._budget and self._enough(free):
                return
        # The peak lies in a step of its own, or in a group: look there first.
        waiting = self._waiting(best)
        # Long groups need least of all where their many ops cost little memory; elsewhere they come after all else.
        yield from self._streams(waiting, best, _LITTLE)
        if self._improved(best):
            return
        for first, last in self._hot(best, waiting):
            yield from self._open(first, last)
            if self._improved(best) or any(self._lowered(step, best.peak) for step in waiting):
                return
        for used in best.groups:
            yield from self._around(used)
            if self._improved(best):
                return
        # Points that need a little more memory lead past ways that exceed the limit of work.
        seen = set(best.groups)
        for point in sorted(self._points.frontier(), key=lambda point: abs(point.required - best.required)):
            for used in point.groups:
                if used not in seen:
                    seen.add(used)
                    yield from self._around(used)
                    if self._improved(best):
                        return
        yield from self._streams(waiting, best, 1.0)

    def _improved(self, best: FrontierPoint) -> bool:
        self._choose()
        return self._best != best

    def _hot_steps(self, best: FrontierPoint) -> list[int]:
        inside = {op for group in best.groups for op in group.ops}
        steps = [op for op, bytes_ in enumerate(self._footprints) if bytes_ == best.peak and op not in inside]
        for group in best.groups:
            judged = self._judged.get(group)
            if judged is not None and judged.peak == best.peak:
                steps += [group.ops[0], group.ops[-1]]
        return steps

    def _waiting(self, best: FrontierPoint) -> list[int]:
        """Return a few steps at the peak that no known way lowers: while there are any the peak stays."""
        waiting = (step for step in self._hot_steps(best) if not self._lowered(step, best.peak))
        return list(itertools.islice(waiting, _STEPS_AT_ONCE))

    def _hot(self, best: FrontierPoint, waiting: Sequence[int]) -> list[tuple[int, int]]:
        """Return intervals that hold one of a few steps at the peak; short ones that could fall far come first."""
        for steps in (waiting, self._hot_steps(best)[:_STEPS_AT_ONCE]):
            found = dict.fromkeys(
                pair
                for step in steps
                for pair in self._around_step(step)
                if pair not in self._opened and self._promising(pair, best)
            )
            if found:
                return sorted(
                    found, key=lambda pair: (self._interval(*pair).floor ** 2 * (pair[1] - pair[0] + 1), pair)
                )
        return []

    def _streams(self, waiting: Sequence[int], best: FrontierPoint, share: float) -> Iterator[TilingGroup]:
        """Yield ways through long groups around steps at the peak, from where little is live to where it is again.

        Args:
            waiting: Steps that no known way lowers; where there are none, others at the peak take their place.
            share: What may be kept for ops in pieces, of the memory that a way saves at the most.
        """
        for step in waiting or self._hot_steps(best)[:_STEPS_AT_ONCE]:
            for halved in range(1, _NARROWER + 1):
                pair = self._span(step, best.peak >> halved)
                if pair is None:
                    break
                if self._promising(pair, best):
                    most = share * (best.required - self._interval(*pair).floor)
                    kept = self._kept[pair[1] + 1] - self._kept[pair[0]]
                    for group in self._choices_of(*pair).streamed():
                        if group not in self._judged and (group.counts[0] - 1) * kept <= most:
                            yield group

    def _span(self, step: int, most: int) -> tuple[int, int] | None:
        """Return the ops around a step from and to the nearest places at which at most ``most`` bytes are live."""
        residues, count = self.intervals.residues, len(self._footprints)
        self._work += count // _OPS_PER_WORK
        first = next((place for place in range(step, -1, -1) if residues[place] <= most), None)
        end = next((place for place in range(step + 1, count + 1) if residues[place] <= most), None)
        return None if first is None or end is None else (first, end - 1)

    def _lowered(self, step: int, peak: int) -> bool:
        """Whether an interval with the step was found to need less than ``peak`` in some pieces."""
        return any(
            first <= step <= last and any(judged.peak < peak for judged in curve)
            for (first, last), curve in self._points.curves.items()
        )

    def _around_step(self, step: int) -> list[tuple[int, int]]:
        """Return the intervals between boundaries that hold a step."""
        at = bisect.bisect_right(self._boundaries, step) - 1
        before, after = self._boundaries[: at + 1], self._boundaries[at + 1 :]
        return [(first, end - 1) for first, end in itertools.product(reversed(before), after) if self._fits(first, end)]

    def _fits(self, first: int, end: int) -> bool:
        return end - first <= _MOST_OPS and self._wide[end] - self._wide[first] <= self._longest

    def _promising(self, pair: tuple[int, int], best: FrontierPoint) -> bool:
        if any(isinstance(self.intervals.geometries[op], Refusal) for op in range(pair[0], pair[1] + 1)):
            return False
        return self._interval(*pair).floor < best.peak

    def _interval(self, first: int, last: int) -> Interval:
        if (first, last) not in self._known:
            self._work += len(self._footprints) // _OPS_PER_WORK
            self._known[first, last] = self.intervals.interval(first, last)
        return self._known[first, last]

    def _choices_of(self, first: int, last: int) -> TilingChoices:
        if (first, last) not in self._choices:
            self._choices[first, last] = TilingChoices(self.intervals, first, last)
        return self._choices[first, last]

    def _open(self, first: int, last: int) -> Iterator[TilingGroup]:
        """Yield the first ways of cutting an interval, each series until it gets worse."""
        self._opened.add((first, last))
        for series in self._choices_of(first, last).ladders():
            least = math.inf
            for group in series:
                if group not in self._judged:
                    yield group
                judged = self._judged.get(group)
                if judged is None or judged.peak >= least:
                    break
                least = judged.peak

    def _around(self, group: TilingGroup) -> Iterator[TilingGroup]:
        """Yield ways near one in use, and the same way for the neighbouring intervals."""
        first, last = group.ops[0], group.ops[-1]
        for near in self._choices_of(first, last).near(group):
            if near not in self._judged:
                yield near
        for pair in self._neighbours(first, last):
            if pair not in self._opened and self._promising(pair, self._best):
                yield from self._open(*pair)

    def _neighbours(self, first: int, last: int) -> list[tuple[int, int]]:
        places = self._boundaries
        begin, end = bisect.bisect_left(places, first), bisect.bisect_left(places, last + 1)
        found = []
        for low, high in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            left, right = begin + low, end + high
            if 0 <= left < right < len(places) and self._fits(places[left], places[right]):
                found.append((places[left], places[right] - 1))
        return found

    def _judge(self, group: TilingGroup) -> None:
        first, last = group.ops[0], group.ops[-1]
        interval = self._interval(first, last)
        self._work += len(group.ops) * math.prod(group.counts) + _WORK_BESIDE
        if self._dropped[first, last] >= _MOST_DROPPED:
            self._judged[group] = None
            return
        judged = self.intervals.judge(interval, group, self._most, self._points.curves.get((first, last), ()))
        if isinstance(judged, Refusal):
            self._judged[group] = None
            return
        self._judged[group] = judged
        if judged.peak < interval.peak:
            self._points.add((first, last), judged)

    # Choosing ------------------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Choose the point of least peak among what was judged so far."""
        point = self._points.least(self._most)
        if (point.required, point.extra_macs) != (self._best.required, self._best.extra_macs):
            self._asked.tell("tiling", point.peak, None)
        self._best = point

    def _found(self, *, exhausted: bool, reached: bool = False) -> TilingResult:
        # What was chosen last stays: a search that was left goes on as if it had not been.
        point = self._points.within(self._budget) if self._budget is not None else None
        return TilingResult(
            best=point or self._points.least(self._most),
            frontier=tuple(self._points.frontier()),
            refusals=tuple(self._refusals()),
            judged=len(self._judged),
            exhausted=exhausted,
            reached=reached,
        )

    def _refusals(self) -> Iterable[tuple[str, str]]:
        for op, reason in self._ends.items():
            yield self.intervals.graph.ops[op].name, reason
