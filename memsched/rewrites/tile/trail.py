"""One trail of a search for groups to cut: what is tried next is what could lower the peak now.

Intervals of the order of execution are judged in pieces one by one (`local`); a dynamic program over the order picks
those that together give the least peak. What is tried next are intervals around its step, and ways near those in use.
So a trail can be left at any time and resumed, and its frontier only improves; where it ends depends on how it began.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from memsched.ops.rules import Refusal
from memsched.rewrites.tile.ground import TilingGround
from memsched.rewrites.tile.local import Group, GroupCost, Interval
from memsched.rewrites.tile.loop import LoopGroup
from memsched.rewrites.tile.pieces import TilingGroup
from memsched.rewrites.tile.points import FrontierPoint, TilingPoints
from memsched.search.run import Run

__all__ = ["TilingTrail"]

_LONGEST = 48
_LONGEST_OF_ALL = 2 * _LONGEST
"""Ops in a group that look at more than single elements: in longer groups halos grow, and pieces cost too much. Longer
ones are tried where nothing else is left, as for a tensor that is kept over several cells.
"""

_MOST_OPS = 120
"""Ops in a group, all counted."""

_NARROWER = 5
"""How often what may be live where a long group begins and ends is halved, from the peak on."""

_LITTLE = 1 / 16
"""Share of the memory that a long group saves at the most which its ops in pieces may cost for it to be tried first."""

_STEPS_AT_ONCE = 4
"""Steps at the peak that intervals are looked for around at a time."""

_WORK_BESIDE = 10
"""The fixed cost of judging a way of cutting, in ops of pieces."""

_MOST_DROPPED = 3
"""Ways of cutting the same ops that may fail before all of them are given up."""

_OPS_PER_WORK = 50
"""Ops of the graph that can be scanned for an interval in the time that one op of a piece takes."""


class TilingTrail:
    """A search that goes on from the best it has found, and may be left and taken up again.

    Args:
        ground: What is searched.
        run: Who may end it with what was found.
        points: What it finds; nothing is known yet.
        most_macs: Extra multiply-accumulates permitted.
        streaming: Long groups with every halo kept come first, where ops cost little; otherwise they come last.
        told: Called whenever the best point is another one.

    Attributes:
        work: Ops of pieces judged so far, `MachinePace.PIECES` a second.
        best: The point of least requirement so far.
    """

    def __init__(
        self,
        ground: TilingGround,
        run: Run,
        points: TilingPoints,
        *,
        most_macs: int,
        streaming: bool,
        told: Callable[[], None],
    ) -> None:
        self._ground, self._asked, self.points = ground, run, points
        self._most = most_macs
        self._streaming, self._told = streaming, told
        self._footprints = ground.footprints
        self._judged: dict[Group, GroupCost | None] = {}
        self._opened: set[tuple[int, int]] = set()
        self._seen: set[tuple[int, int]] = set()
        self.work = 0
        self._longest = _LONGEST
        self.best = points.uncut
        self._dropped: Counter[tuple[int, int]] = Counter()
        self._ways = self._proposals()

    @property
    def judged(self) -> int:
        """How many ways of cutting were judged."""
        return len(self._judged)

    def streams_at_once(self) -> bool:
        """Return whether there are long groups at the peak whose ops in pieces cost little memory."""
        return next(self._streams(self._waiting(self.best), self.best, _LITTLE), None) is not None

    def learn(self, other: TilingTrail) -> None:
        """Take up all ways of cutting that another trail has judged."""
        for interval, curve in other.points.curves.items():
            known = {one.group for one in self.points.curves.get(interval, ())}
            for judged in curve:
                if judged.group not in known:
                    self.points.add(interval, judged)
        self._judged.update(other._judged)
        self._opened |= other._opened
        self._dropped |= other._dropped

    # The loop ------------------------------------------------------------------------------------------------------

    def run(self, most: float) -> bool:
        """Try what may help until all calls together did so much work; return whether nothing is left before that."""
        for group in self._ways:
            if self._asked.stop():
                return False
            self._judge(group)
            if self.work >= most:
                return False
        return True

    def take(self, loops: Iterable[GroupCost]) -> None:
        """Take up ways of computing intervals that are known from elsewhere."""
        for judged in loops:
            if judged.group not in self._judged:
                self._judged[judged.group] = judged
                self.points.add((judged.group.ops[0], judged.group.ops[-1]), judged)
        # A search that had ended has something to look for again.
        self._ways = self._proposals()

    def drop(self, groups: Iterable[Group]) -> None:
        """Forget ``groups``, which cannot be written, and every way of cutting ops for which that happens often."""
        for group in groups:
            pair = group.ops[0], group.ops[-1]
            self._dropped[pair] += 1
            often = self._dropped[pair] >= _MOST_DROPPED
            self.points.drop(pair, None if often else group)
            self._judged[group] = None
        self.choose()
        # A search that had ended has something to look for again.
        self._ways = self._proposals()

    def choose(self) -> None:
        """Choose the point of least peak among what was judged so far."""
        before, self.best = self.best, self.points.least(self._most)
        if self.best != before:
            self._told()

    def _proposals(self) -> Iterator[TilingGroup]:
        """Yield groups to be judged; what is judged decides what comes next."""
        while self._footprints:
            self.choose()
            new = False
            for group in self._next_steps():
                new = True
                yield group
            if not new and self._longest == _LONGEST_OF_ALL:
                return
            if not new:
                self._longest = _LONGEST_OF_ALL

    def _next_steps(self) -> Iterator[TilingGroup]:
        best = self.best
        # The peak lies in a step of its own, or in a group: look there first.
        waiting = self._waiting(best)
        # Long groups need least of all where their many ops cost little memory; elsewhere they come after all else.
        if self._streaming:
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
        for point in sorted(self.points.frontier(), key=lambda point: abs(point.required - best.required)):
            for used in point.groups:
                if used not in seen:
                    seen.add(used)
                    yield from self._around(used)
                    if self._improved(best):
                        return
        yield from self._streams(waiting, best, 1.0)

    def _improved(self, best: FrontierPoint) -> bool:
        self.choose()
        return self.best != best

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
                    kept = self._ground.kept[pair[1] + 1] - self._ground.kept[pair[0]]
                    for group in self._ground.choices(*pair).streamed():
                        if group not in self._judged and (group.counts[0] - 1) * kept <= most:
                            yield group

    def _span(self, step: int, most: int) -> tuple[int, int] | None:
        """Return the ops around a step from and to the nearest places at which at most ``most`` bytes are live."""
        residues, count = self._ground.intervals.residues, len(self._footprints)
        self.work += count // _OPS_PER_WORK
        first = next((place for place in range(step, -1, -1) if residues[place] <= most), None)
        end = next((place for place in range(step + 1, count + 1) if residues[place] <= most), None)
        return None if first is None or end is None else (first, end - 1)

    def _lowered(self, step: int, peak: int) -> bool:
        """Whether an interval with the step was found to need less than ``peak`` in some pieces."""
        return any(
            first <= step <= last and any(judged.peak < peak for judged in curve)
            for (first, last), curve in self.points.curves.items()
        )

    def _around_step(self, step: int) -> list[tuple[int, int]]:
        """Return the intervals between boundaries that hold a step."""
        at = bisect.bisect_right(self._ground.boundaries, step) - 1
        before, after = self._ground.boundaries[: at + 1], self._ground.boundaries[at + 1 :]
        return [(first, end - 1) for first, end in itertools.product(reversed(before), after) if self._fits(first, end)]

    def _fits(self, first: int, end: int) -> bool:
        return end - first <= _MOST_OPS and self._ground.wide[end] - self._ground.wide[first] <= self._longest

    def _promising(self, pair: tuple[int, int], best: FrontierPoint) -> bool:
        if any(isinstance(self._ground.intervals.geometries[op], Refusal) for op in range(pair[0], pair[1] + 1)):
            return False
        return self._interval(*pair).floor < best.peak

    def _interval(self, first: int, last: int) -> Interval:
        if (first, last) not in self._seen:
            self._seen.add((first, last))
            self.work += len(self._footprints) // _OPS_PER_WORK
        return self._ground.interval(first, last)

    def _open(self, first: int, last: int) -> Iterator[TilingGroup]:
        """Yield the first ways of cutting an interval, each series until it gets worse."""
        self._opened.add((first, last))
        for series in self._ground.choices(first, last).ladders():
            least = math.inf
            for group in series:
                if group not in self._judged:
                    yield group
                judged = self._judged.get(group)
                if judged is None or judged.peak >= least:
                    break
                least = judged.peak

    def _around(self, group: Group) -> Iterator[TilingGroup]:
        """Yield ways near one in use, and the same way for the neighbouring intervals."""
        first, last = group.ops[0], group.ops[-1]
        for near in () if isinstance(group, LoopGroup) else self._ground.choices(first, last).near(group):
            if near not in self._judged:
                yield near
        for pair in self._neighbours(first, last):
            if pair not in self._opened and self._promising(pair, self.best):
                yield from self._open(*pair)

    def _neighbours(self, first: int, last: int) -> list[tuple[int, int]]:
        places = self._ground.boundaries
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
        self.work += len(group.ops) * math.prod(group.counts) + _WORK_BESIDE
        if self._dropped[first, last] >= _MOST_DROPPED:
            self._judged[group] = None
            return
        judged = self._ground.intervals.judge(interval, group, self._most, self.points.curves.get((first, last), ()))
        if isinstance(judged, Refusal):
            self._judged[group] = None
            return
        self._judged[group] = judged
        if judged.peak < interval.peak:
            self.points.add((first, last), judged)
