"""A depth-first search for addresses that fit a capacity, for blocks that use the same bytes in all their sections.

The layout grows from below. Of each block that has no address yet the lowest position that it can have is known. The
search takes the section (the blocks live at one time) whose lowest block is lowest of all, of several the one where
fewest blocks can lie there, and tries for the preferred one: it lies at its lowest position, or it does not. If it
does, all others that it meets lie above it. If it does not, it rests on one that has no address yet, because every
packing can be pushed down until each block rests on the floor or on another one (canonical packings: Moffitt,
"MiniMalloc", ASPLOS 2023). A section's blocks, stacked by lowest position, must end below the capacity.

Which section comes next decides. Fewest candidates first, after those that are full and have only one candidate, half
of the public instances need hardly more nodes than they have buffers; with an order of blocks alone they need
thousands. What remains depends on the preferences, so that many short attempts beat a long one.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Sequence
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST
from memsched.core.library import library
from memsched.search.limits import LOOK_EVERY
from memsched.solve.allocate.compiled import attempts_at
from memsched.solve.allocate.preprocess import PackingProblem

__all__ = ["ATTEMPTS", "Attempt", "PackingOutcome", "attempt"]


_KINDS = ("time", "sections", "size", "area")
_RULES = ("forced first", "lowest", "fewest")
ATTEMPTS = len(_KINDS) * len(_RULES)
"""Attempts after which all tie rules have been tried once."""

_NOISES = (0.1, 0.3, 0.6)
_NOISES_OF_A_GUIDE = (0.02, 0.05, 0.1, 0.2, 0.3)


class Attempt(FrozenValue, frozen=True):
    """One run of the search: a pure function of these, unless it is stopped.

    Attributes:
        number: From 0; says which tie rules are used and, with ``seed``, what is drawn.
        capacity: In the problem's units.
        nodes: Placements and refusals allowed.
        guide: Per item a position, the lower the sooner it is preferred, negative: by a measure; empty: so are all.
    """

    number: int
    seed: int
    capacity: int
    nodes: int
    guide: tuple[int, ...] = ()


class PackingOutcome(FrozenValue, frozen=True):
    """What an attempt found.

    Attributes:
        status: "infeasible" is a proof; "unknown": out of nodes or stopped.
        positions: Of each item, in units; empty unless found.
        least: No capacity below this is enough, in units: with "infeasible" more than the capacity.
        nodes: Placements and refusals made.
        stopped: Whether ``stop`` ended it.
    """

    status: Literal["found", "infeasible", "unknown"]
    positions: tuple[int, ...]
    least: int
    nodes: int
    stopped: bool = False


def attempt(problem: PackingProblem, wanted: Attempt, stop: Callable[[], bool]) -> PackingOutcome:
    """Search ``problem`` for positions within ``wanted.capacity``, by the compiled core where there is one."""
    core = library()
    if core is None or max(wanted.capacity, sum(problem.widths)) >= LARGEST // 2:
        return _PackingSearch(problem, wanted).run(wanted.nodes, stop)
    rule = wanted.number // len(_KINDS) % len(_RULES)
    status, positions, least, nodes = attempts_at(problem, core).run(
        wanted.capacity, wanted.nodes, rule, _preferences(problem, wanted), stop
    )
    if status == "found":
        return PackingOutcome("found", positions, 0, nodes)
    if status == "infeasible":
        return PackingOutcome("infeasible", (), least, nodes)
    return PackingOutcome("unknown", (), 0, nodes, status == "stopped")


def _preferences(problem: PackingProblem, wanted: Attempt) -> list[float]:
    """Return a rank per item, lower first: by one of some measures, blurred by chance except in the first attempts."""
    count = len(problem.widths)
    rng = random.Random(f"{wanted.seed} {wanted.number}")  # noqa: S311
    kind = _KINDS[wanted.number % len(_KINDS)]
    noise = _NOISES[wanted.number // ATTEMPTS % len(_NOISES)]
    measures = {
        "size": problem.widths,
        "area": [width * duration for width, duration in zip(problem.widths, problem.durations, strict=True)],
        "time": problem.durations,
        "sections": [len(sections) for sections in problem.sections],
    }
    measure = measures[kind]
    order = sorted(range(count), key=lambda i: (-measure[i], i))
    result = [0.0] * count
    for rank, item in enumerate(order):
        result[item] = rank / count + noise * rng.random()
    if wanted.guide:
        height, noise = max(1, wanted.capacity), rng.choice(_NOISES_OF_A_GUIDE)
        for item, position in enumerate(wanted.guide):
            if position >= 0:
                result[item] = position / height + noise * rng.random()
    return result


class _PackingSearch:
    def __init__(self, problem: PackingProblem, wanted: Attempt) -> None:
        self.problem = problem
        self.capacity = wanted.capacity
        self.room = [wanted.capacity + slack for slack in problem.slack]
        """Where a section's stack must end."""
        self.prefer = _preferences(problem, wanted)
        self.rule = _RULES[wanted.number // len(_KINDS) % len(_RULES)]
        count = len(problem.widths)
        self.lowest = list(problem.lowest)
        self.placed = [False] * count
        self.positions = [-1] * count
        self.least = LARGEST
        """The least capacity that one of the pruned branches may need."""
        self.order: list[int] = []
        self.ends: list[int] = []
        self.floors: list[int] = []

    def run(self, nodes: int, stop: Callable[[], bool]) -> PackingOutcome:
        trail: list[tuple[int, list[tuple[int, int]]]] = []
        made, left = 0, len(self.positions)
        feasible = self._fits()
        while feasible and left:
            made += 1
            stopped = made % LOOK_EVERY == 0 and stop()
            if stopped or made > nodes:
                return PackingOutcome("unknown", (), 0, made, stopped)
            item = self._choose()
            trail.append((item, self._place(item)))
            left -= 1
            feasible = self._fits()
            while not feasible and trail:
                item, changes = trail.pop()
                if self.placed[item]:
                    left += 1
                    self._take_back(item, changes)
                    refusal = self._refuse(item)
                    if refusal is not None:
                        trail.append((item, refusal))
                        feasible = self._fits()
                else:
                    self._restore(changes)
        if not feasible:
            return PackingOutcome("infeasible", (), self.least, made)
        return PackingOutcome("found", tuple(self.positions), 0, made)

    def _place(self, item: int) -> list[tuple[int, int]]:
        """Place an item at its lowest position and lift what it meets; return what was changed."""
        lowest, placed, problem = self.lowest, self.placed, self.problem
        self.positions[item] = lowest[item]
        placed[item] = True
        end = lowest[item] + problem.widths[item]
        changes = []
        for other in problem.meets[item]:
            if lowest[other] < end and not placed[other]:
                changes.append((other, lowest[other]))
                lowest[other] = end
        if problem.irregular:
            for other, _ in changes:
                lowest[other] = problem.aligned(other, end)
        return changes

    def _take_back(self, item: int, changes: list[tuple[int, int]]) -> None:
        self.positions[item] = -1
        self.placed[item] = False
        self._restore(changes)

    def _restore(self, changes: list[tuple[int, int]]) -> None:
        for other, before in changes:
            self.lowest[other] = before

    def _refuse(self, item: int) -> list[tuple[int, int]] | None:
        """Lift an item on the lowest one that it may rest on, its twins too; None when that cannot be."""
        lowest, placed, problem = self.lowest, self.placed, self.problem
        if problem.fixed[item]:
            return None
        widths = problem.widths
        rest = min([lowest[other] + widths[other] for other in problem.meets[item] if not placed[other]], default=-1)
        if rest < 0:
            return None
        rest = problem.aligned(item, rest)
        changes = []
        for one in (item, *problem.twins[item]):
            if not placed[one] and lowest[one] < rest:
                changes.append((one, lowest[one]))
                lowest[one] = rest
        return changes

    def _fits(self) -> bool:
        """Whether each section's blocks, stacked by lowest position, end below the capacity."""
        problem, lowest, placed, capacity = self.problem, self.lowest, self.placed, self.capacity
        widths, sections, above, highest = problem.widths, problem.sections, problem.above, problem.highest
        room = self.room
        order = [item for item in range(len(widths)) if not placed[item]]
        order.sort(key=lowest.__getitem__)
        ends = [0] * problem.section_count
        floors = [-1] * problem.section_count
        for item in order:
            low, width = lowest[item], widths[item]
            end = low + width
            if low > highest[item]:
                return False
            if end + above[item] > capacity:
                self.least = min(self.least, end + above[item])
                return False
            for section in sections[item]:
                current = ends[section]
                current = current + width if current > low else end
                if current > room[section]:
                    self.least = min(self.least, capacity + current - room[section])
                    return False
                ends[section] = current
                if floors[section] < 0:
                    floors[section] = low
        self.order, self.ends, self.floors = order, ends, floors
        return True

    def _choose(self) -> int:
        """Return the preferred block of the section that comes next; none can lie below it in any of its sections."""
        ends, floors, room = self.ends, self.floors, self.room
        candidates = self.order
        if self.rule == "lowest" or (self.rule == "forced first" and not any(map(operator.ge, ends, room))):
            bottom = self.lowest[self.order[0]]
            candidates = list(itertools.takewhile(lambda item: self.lowest[item] == bottom, candidates))
        counts, ready = self._ready(candidates)
        sections: Sequence[int] = [section for section, item in enumerate(ready) if item >= 0]
        if self.rule == "fewest":
            return ready[min(sections, key=lambda one: (counts[one], floors[one], -ends[one], one))]
        forcing = self.rule == "forced first"

        def rank(section: int) -> tuple[int, int, int, int]:
            forced = forcing and counts[section] == 1 and ends[section] >= room[section]
            return (-1 if forced else floors[section], counts[section], -ends[section], section)

        return ready[min(sections, key=rank)]

    def _ready(self, candidates: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return per section how many of the candidates can lie lowest, and the preferred that can in all its own."""
        lowest, prefer, floors, all_sections = self.lowest, self.prefer, self.floors, self.problem.sections
        counts = [0] * self.problem.section_count
        ready = [-1] * self.problem.section_count
        for item in candidates:
            low = lowest[item]
            is_ready = True
            for section in all_sections[item]:
                if floors[section] != low:
                    is_ready = False
                else:
                    counts[section] += 1
            if is_ready:
                for section in all_sections[item]:
                    if ready[section] < 0 or prefer[item] < prefer[ready[section]]:
                        ready[section] = item
        return counts, ready
