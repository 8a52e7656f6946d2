"""Which groups to cut, and how: the least peak under a limit of extra work, and what less work leads to.

A search goes on from the best it has found, so where it ends depends on how it began. Two trails therefore take turns:
one begins with short groups around the peak, the other with long ones all of whose halos are kept. Where both have
ended, a third goes on from the best that groups of either give. What was found is one frontier, which only improves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.lowering.prices import Prices
from memsched.rewrites.tile.ground import TilingGround
from memsched.rewrites.tile.local import Group, GroupCost, Intervals
from memsched.rewrites.tile.points import FrontierPoint, TilingPoints
from memsched.rewrites.tile.trail import TilingTrail
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["FrontierPoint", "TilingSearch"]

_TURN = 0.25
"""Work of one trail after which the other one goes on. The one with short groups is first: little work is all its own.
"""

_APART = 2
"""Trails that begin apart; where both have ended, the next one begins with what they found."""


class TilingSearch:
    """A search for the groups of ``graph`` to cut, which may be left and taken up again.

    Args:
        graph: Not lowered, its ops in order of execution.
        run: Who may end it with what was found, and who is told the least peak.
        most_macs: Extra multiply-accumulates permitted.
        prices: What the runtime keeps for every op: what is made small is what it requires in all. None: the peak.
        most_time: Extra time permitted, as the prices count it.
        exact: Only cuts that give the same bits.

    Attributes:
        intervals: What judges ways of cutting.
        exhausted: Nothing is left to try.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        run: Run,
        *,
        most_macs: int,
        prices: Prices | None = None,
        most_time: float = math.inf,
        exact: bool = False,
    ) -> None:
        self.intervals = Intervals(graph, target, dialect, prices, exact=exact)
        self._asked, self._most = run, most_macs
        self._ground = TilingGround(self.intervals)
        self._prices, self._most_time = prices, most_time
        self._trails = [self._trail(streaming=False)]
        self._begun = False
        self._ended: set[int] = set()
        self._turn = 0
        self._until = 0.0
        self._told: FrontierPoint | None = None
        self.exhausted = False

    @property
    def work(self) -> float:
        """What was done so far, about as much as an idle machine does in so many seconds."""
        return self._work / MachinePace.PIECES

    @property
    def _work(self) -> int:
        return sum(trail.work for trail in self._trails)

    @property
    def judged(self) -> int:
        """How many ways of cutting were judged."""
        return sum(trail.judged for trail in self._trails)

    def go_on(self, until: float) -> bool:
        """Try what may help until nothing is left or all calls together did so much work; return whether all is tried.

        Args:
            until: As in ``work``.
        """
        if self._asked.stop():
            return self.exhausted
        self._begin()
        most = until * MachinePace.PIECES
        while self._takes_turn():
            trail = self._trails[self._turn]
            if trail.run(min(self._until, trail.work + most - self._work)):
                self._ended.add(self._turn)
            elif self._asked.stop() or self._work >= most:
                return False
        self.exhausted = True
        return True

    def best(self) -> FrontierPoint:
        """Return the permitted point that requires least; without groups where cutting does not help."""
        found = (trail.points.least(self._most) for trail in self._trails)
        return min(found, key=lambda point: (point.required, point.extra_macs))

    def frontier(self) -> Iterator[FrontierPoint]:
        """Yield what no point of any trail betters: falling requirements with rising work; the first costs nothing."""
        work = self._trails[0].points.work
        points = [point for trail in self._trails for point in trail.points.frontier()]
        least = math.inf
        for point in sorted(points, key=lambda point: (work(point), point.required, point.peak)):
            if point.required < least:
                yield point
                least = point.required

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Yield the names of ops at which groups end, with the reasons."""
        return ((self.intervals.graph.ops[op].name, reason) for op, reason in self._ground.ends.items())

    def take(self, loops: Iterable[GroupCost]) -> None:
        """Take up intervals as loops, which are ways of computing them beside those in pieces."""
        known = list(loops)
        for trail in self._trails:
            trail.take(known)
        self._ended.clear()
        self.exhausted = False

    def drop(self, groups: Iterable[Group]) -> None:
        """Forget ``groups``, which cannot be written, and every way of cutting ops for which that happens often."""
        dropped = list(groups)
        for trail in self._trails:
            trail.drop(dropped)
        # A trail that had ended has something to look for again.
        self._ended.clear()
        self.exhausted = False

    def _trail(self, *, streaming: bool) -> TilingTrail:
        points = TilingPoints(self._ground.footprints, self._prices, self._most, self._most_time)
        return TilingTrail(
            self._ground, self._asked, points, most_macs=self._most, streaming=streaming, told=self._tell
        )

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
            self._until = math.inf if len(going) == 1 else most + _TURN * MachinePace.PIECES
        return True

    def _tell(self) -> None:
        """Tell of the least peak so far, where it is another one."""
        best = self.best()
        if self._told is None or (best.required, best.extra_macs) != (self._told.required, self._told.extra_macs):
            self._told = best
            if best.groups:
                self._asked.tell("tiling", best.peak, None)
