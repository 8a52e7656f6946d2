"""Which groups to cut, and how: the least peak under a limit of extra work, or the least extra work under a budget.

A search goes on from the best it has found, so where it ends depends on how it began. Two trails therefore take turns:
one begins with short groups around the peak, the other with long ones all of whose halos are kept. Where both have
ended, a third goes on from the best that groups of either give. What was found is one frontier, which only improves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from memsched.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.lowering.prices import Prices
from memsched.search.run import Run
from memsched.targets.model import Target
from memsched.tiling.ground import TilingGround
from memsched.tiling.local import Group, GroupCost, Intervals
from memsched.tiling.points import FrontierPoint, TilingPoints
from memsched.tiling.trail import WORK_PER_SECOND, TilingTrail

__all__ = ["FrontierPoint", "TilingResult", "TilingSearch"]

_LEAST_EFFORT = 1.0
"""Work that every search does, whatever the time: the first finds are often small, and much better ones soon follow."""

_LEAST_EFFORT_FOR_NOTHING = 2.0
"""The same while nothing has been found: a peak that all layers share falls only when all of them are in pieces."""

_TURN = 0.25
"""Work of one trail after which the other one goes on. The one with short groups is first: little work is all its own,
with a budget, where ops cost no memory, as without one.
"""

_APART = 2
"""Trails that begin apart; where both have ended, the next one begins with what they found."""


class TilingResult(FrozenValue, frozen=True):
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


class TilingSearch:
    """A search for the groups of ``graph`` to cut, which may be left and taken up again.

    Args:
        graph: Not lowered, its ops in order of execution.
        run: Who may end it with what was found, and who is told the least peak; when it ends by itself is said to
            `TilingSearch.run`.
        most_macs: Extra multiply-accumulates permitted.
        budget: Bytes that may be required: then the least work that reaches them is sought, within ``most_macs``.
        enough: Whether a point without extra work, which is within the budget, ends the search; without it any does.
        prices: What the runtime keeps for every op: what is made small is what it requires in all. None: the peak.
        most_time: Extra time permitted, as the prices count it.
        loops: Intervals as loops, which are ways of computing them beside those in pieces.
        exact: Only cuts that give the same bits.

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
        loops: Sequence[GroupCost] = (),
        exact: bool = False,
    ) -> None:
        self.intervals = Intervals(graph, target, dialect, prices, exact=exact)
        self._asked, self._most, self._budget = run, most_macs, budget
        self._ground = TilingGround(self.intervals)
        self._prices, self._most_time, self._enough = prices, most_time, enough or (lambda _: True)
        self._loops = loops
        self._trails = [self._trail(streaming=False)]
        self._begun = False
        self._ended: set[int] = set()
        self._turn = 0
        self._until = 0.0
        self._told: FrontierPoint | None = None

    @property
    def work(self) -> float:
        """What was done so far, about as much as an idle machine does in so many seconds."""
        return self._work / WORK_PER_SECOND

    @property
    def _work(self) -> int:
        return sum(trail.work for trail in self._trails)

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
        if not self._begun and (effort == 0 or self._asked.stop()):
            uncut = self._trails[0].points.uncut
            return TilingResult(uncut, (uncut,), (), 0, exhausted=False)
        self._begin()
        most = math.inf if effort is None else effort * WORK_PER_SECOND

        def late() -> bool:
            return self._late(pause, end)

        while self._takes_turn():
            trail = self._trails[self._turn]
            left = trail.run(min(self._until, trail.work + most - self._work), late, until)
            if left == "ended":
                self._ended.add(self._turn)
                if trail.free_is_enough():
                    break
            elif left == "reached" or self._asked.stop() or self._work >= most or late():
                return self._found(exhausted=False, reached=left == "reached")
        return self._found(exhausted=True)

    def drop(self, groups: Iterable[Group]) -> None:
        """Forget ``groups``, which cannot be written, and every way of cutting ops for which that happens often."""
        dropped = list(groups)
        for trail in self._trails:
            trail.drop(dropped)
        # A trail that had ended has something to look for again.
        self._ended.clear()

    def _trail(self, *, streaming: bool) -> TilingTrail:
        trail = TilingTrail(
            self._ground,
            self._asked,
            TilingPoints(self._ground.footprints, self._prices, self._most, self._most_time),
            most_macs=self._most,
            budget=self._budget,
            enough=self._enough,
            streaming=streaming,
            told=self._tell,
        )
        trail.take(self._loops)
        return trail

    def _begin(self) -> None:
        """Find out whether long groups are worth a trail of their own."""
        if not self._begun:
            self._begun = True
            other = self._trail(streaming=True)
            if other.streams_at_once():
                self._trails.append(other)

    def _takes_turn(self) -> bool:
        """Choose the trail that goes on, and until when: the one that did less work; return whether there is one.

        A turn is not over before its work is done, however often the search is left in it.
        """
        going = [number for number in range(len(self._trails)) if number not in self._ended]
        if not going and len(self._trails) == _APART:
            last = self._trail(streaming=True)
            for trail in self._trails:
                last.learn(trail)
            going.append(_APART)
            self._trails.append(last)
        if not going:
            return False
        if self._turn not in going or self._trails[self._turn].work >= self._until:
            self._turn = min(going, key=lambda number: self._trails[number].work)
            most = max(trail.work for trail in self._trails)
            self._until = math.inf if len(going) == 1 else most + _TURN * WORK_PER_SECOND
        return True

    def _late(self, pause: float, end: float) -> bool:
        now = time.monotonic()
        if now < pause or self._work < _LEAST_EFFORT * WORK_PER_SECOND:
            return False
        if any(trail.helps() for trail in self._trails):
            return True
        return now >= end and self._work >= _LEAST_EFFORT_FOR_NOTHING * WORK_PER_SECOND

    def _tell(self) -> None:
        """Tell of the least peak so far, where it is another one."""
        best = self._best()
        if self._told is None or (best.required, best.extra_macs) != (self._told.required, self._told.extra_macs):
            self._told = best
            if best.groups:
                self._asked.tell("tiling", best.peak, None)

    def _best(self) -> FrontierPoint:
        found = (trail.points.least(self._most) for trail in self._trails)
        return min(found, key=lambda point: (point.required, point.extra_macs))

    def _within(self) -> FrontierPoint | None:
        """Return the point of least work within the budget; None where there is none."""
        if self._budget is None:
            return None
        found = [point for trail in self._trails if (point := trail.points.within(self._budget)) is not None]
        work = self._trails[0].points.work
        return min(found, key=lambda point: (work(point), point.required), default=None)

    def _frontier(self) -> Iterator[FrontierPoint]:
        """Yield what no point of any trail betters."""
        work = self._trails[0].points.work
        points = [point for trail in self._trails for point in trail.points.frontier()]
        least = math.inf
        for point in sorted(points, key=lambda point: (work(point), point.required, point.peak)):
            if point.required < least:
                yield point
                least = point.required

    def _found(self, *, exhausted: bool, reached: bool = False) -> TilingResult:
        # What was chosen last stays: a search that was left goes on as if it had not been.
        return TilingResult(
            best=self._within() or self._best(),
            frontier=tuple(self._frontier()),
            refusals=tuple((self.intervals.graph.ops[op].name, reason) for op, reason in self._ground.ends.items()),
            judged=sum(trail.judged for trail in self._trails),
            exhausted=exhausted,
            reached=reached,
        )
