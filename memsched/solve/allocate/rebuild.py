"""Packings rebuilt: blocks are taken out of a part that fits, and put back where they still do, until none is left out.

A packing is an order of its blocks: each lies on those before it that it meets. What is below and above each is known,
so that all places in the order that keep the height within the capacity are found in one pass; the one with most room
to spare is taken. What finds no place is left out. A change is kept where fewer blocks are left out, or blocks that
were left out less often before (absences: Christiaens and Vanden Berghe, "Slack Induction by String Removals", 2020;
ruin and recreate: Schrimpf et al. 2000). Half of the time what is taken out is live beside one that is left out.

It proves nothing, and needs room between: where most sections are full, the tree search is quicker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from memsched.base.units import LARGEST, LARGEST_INT64
from memsched.core.library import library
from memsched.search.limits import LOOK_EVERY
from memsched.solve.allocate.compiled import rebuilt
from memsched.solve.allocate.preprocess import PackingProblem
from memsched.solve.allocate.search import Attempt, PackingOutcome

__all__ = ["can_rebuild", "rebuild"]


_MOST_DRAWN = 23
"""Blocks taken out at once, at most."""

_PASSED_OVER = 64
"""One place of so many is passed over, by chance."""

_RULES = ("chance", "area", "width", "absence")
"""Orders in which blocks are put back."""

_WORD = 2 * LARGEST_INT64 + 1


def can_rebuild(problem: PackingProblem) -> bool:
    """Return whether the positions of ``problem`` follow from an order alone."""
    return not problem.irregular and not any(problem.fixed)


def rebuild(problem: PackingProblem, wanted: Attempt, stop: Callable[[], bool]) -> PackingOutcome:
    """Search a problem that `can_rebuild` for positions within ``wanted.capacity``; never "infeasible".

    A node is a block put back or left out.
    """
    chance = random.Random(f"rebuild {wanted.seed} {wanted.number}").getrandbits(64)  # noqa: S311 - no secret
    if not problem.widths:
        return PackingOutcome("found", (), 0, 0)
    areas = _ranks([len(live) * width for live, width in zip(problem.sections, problem.widths, strict=True)])
    widths = _ranks(problem.widths)
    core = library()
    if core is None or max(wanted.capacity, sum(problem.widths)) >= LARGEST // 2:
        return _Rebuilding(problem, wanted.capacity, chance, areas, widths).run(wanted.nodes, stop)
    status, positions, made = rebuilt(core, problem, (areas, widths), wanted.capacity, wanted.nodes, chance, stop)
    if status == "found":
        return PackingOutcome("found", positions, 0, made)
    return PackingOutcome("unknown", (), 0, made, status == "stopped")


def _ranks(values: Sequence[int]) -> list[int]:
    """Return how many different values are larger than each."""
    places = {value: place for place, value in enumerate(sorted(set(values), reverse=True))}
    return [places[value] for value in values]


class _Chance:
    """Numbers by chance that the core draws too: SplitMix64 (Steele, Lea and Flood 2014)."""

    def __init__(self, state: int) -> None:
        self._state = state

    def below(self, count: int) -> int:
        """Return a number from 0 up to ``count``."""
        self._state = mixed = (self._state + 0x9E3779B97F4A7C15) & _WORD
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
        mixed ^= mixed >> 31
        return (mixed >> 32) * count >> 32


class _Rebuilding:
    def __init__(
        self, problem: PackingProblem, capacity: int, chance: int, areas: Sequence[int], widths: Sequence[int]
    ) -> None:
        count = len(problem.widths)
        self.problem = problem
        self.capacity = capacity
        self.chance = _Chance(chance)
        self.areas, self.widths = areas, widths
        """Ranks, the largest first."""
        self.absences = [1] * count
        self.order: list[int] = []
        self.left = list(range(count))
        self.trial: list[int] = []
        self.places = [-1] * count
        """The place of each item in the trial, or -1."""
        self.lows = [0] * count
        """The least positions in the trial."""
        self.highs = [0] * count
        """What is needed above each item of the trial, at least."""

    def run(self, nodes: int, stop: Callable[[], bool]) -> PackingOutcome:
        made = 0
        while True:
            again = self._take_out()
            self._stack()
            self._arrange(again)
            missed: list[int] = []
            known, total = sum([self.absences[item] for item in self.left]), 0
            for item in again:
                if made >= nodes:
                    return PackingOutcome("unknown", (), 0, made)
                made += 1
                if made % LOOK_EVERY == 0 and stop():
                    return PackingOutcome("unknown", (), 0, made, stopped=True)
                if self._insert(item):
                    continue
                missed.append(item)
                total += self.absences[item]
                if total > known and len(missed) >= len(self.left):
                    break
            else:
                if not missed:
                    return PackingOutcome("found", tuple(self.lows), 0, made)
                for item in missed:
                    self.absences[item] += 1
                if len(missed) < len(self.left) or total <= known:
                    self.order, self.left = self.trial, missed

    def _take_out(self) -> list[int]:
        """Begin a trial without what is left out and some items by chance, of all or of those that one left out meets.

        Return what is not in the trial.
        """
        out = dict.fromkeys(self.left)
        drawn: Sequence[int] = range(len(self.places))
        if self.chance.below(2):
            drawn = self.problem.meets[self.left[self.chance.below(len(self.left))]]
        for _ in range(1 + self.chance.below(_MOST_DRAWN) if drawn else 0):
            out.setdefault(drawn[self.chance.below(len(drawn))])
        self.trial = [item for item in self.order if item not in out]
        return list(out)

    def _stack(self) -> None:
        """Find how low and how high the items of the trial can lie."""
        problem, lows, highs = self.problem, self.lows, self.highs
        widths = problem.widths
        self.places = places = [-1] * len(widths)
        for place, item in enumerate(self.trial):
            below = [lows[other] + widths[other] for other in problem.meets[item] if places[other] >= 0]
            lows[item] = max(problem.lowest[item], *below) if below else problem.lowest[item]
            places[item] = place
        for place in range(len(self.trial) - 1, -1, -1):
            item = self.trial[place]
            above = [highs[other] + widths[other] for other in problem.meets[item] if places[other] > place]
            highs[item] = max(problem.above[item], *above) if above else problem.above[item]

    def _arrange(self, items: list[int]) -> None:
        """Put items into the order in which they are put back."""
        rule = _RULES[self.chance.below(len(_RULES))]
        for count in range(len(items), 1, -1):
            other = self.chance.below(count)
            items[count - 1], items[other] = items[other], items[count - 1]
        if rule == "area":
            items.sort(key=self.areas.__getitem__)
        elif rule == "width":
            items.sort(key=self.widths.__getitem__)
        elif rule == "absence":
            items.sort(key=lambda item: -self.absences[item])

    def _insert(self, item: int) -> bool:
        """Insert an item into the trial where most room is left; whether there is such a place."""
        problem, places, lows, widths = self.problem, self.places, self.lows, self.problem.widths
        near = sorted([other for other in problem.meets[item] if places[other] >= 0], key=places.__getitem__)
        reaches = [problem.above[item]]
        for other in reversed(near):
            reaches.append(max(reaches[-1], self.highs[other] + widths[other]))
        reaches.reverse()
        low, least, best, ties = problem.lowest[item], 0, (-1, 0), 0
        for gap, reach in enumerate(reaches):
            if gap:
                low = max(low, lows[near[gap - 1]] + widths[near[gap - 1]])
            through = low + widths[item] + reach
            if through > self.capacity or self.chance.below(_PASSED_OVER) == 0 or (ties and through > least):
                continue
            ties = ties + 1 if ties and through == least else 1
            if ties == 1 or self.chance.below(ties) == 0:
                least, best = through, (gap, low)
        if not ties:
            return False
        gap, lows[item] = best
        self.highs[item] = reaches[gap]
        place = places[near[gap - 1]] + 1 if gap else 0
        self.trial.insert(place, item)
        for moved in range(place, len(self.trial)):
            places[self.trial[moved]] = moved
        self._lift(place)
        self._hold_down(place)
        return True

    def _lift(self, place: int) -> None:
        """Lift what lies on the item at ``place`` of the trial, and what that lifts."""
        waiting = {self.trial[place]}
        while waiting:
            item = self.trial[place]
            if item in waiting:
                waiting.remove(item)
                end = self.lows[item] + self.problem.widths[item]
                for other in self.problem.meets[item]:
                    if self.places[other] > place and self.lows[other] < end:
                        self.lows[other] = end
                        waiting.add(other)
            place += 1

    def _hold_down(self, place: int) -> None:
        """Tell what lies below the item at ``place`` how much there is above it, and what lies below that."""
        waiting = {self.trial[place]}
        while waiting:
            item = self.trial[place]
            if item in waiting:
                waiting.remove(item)
                above = self.highs[item] + self.problem.widths[item]
                for other in self.problem.meets[item]:
                    if 0 <= self.places[other] < place and self.highs[other] < above:
                        self.highs[other] = above
                        waiting.add(other)
            place -= 1
