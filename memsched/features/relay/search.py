"""Stages whose largest needs least: a shortest path over all places to cut, with the costs found when they are needed.

What a stage takes is known for certain only when its file is made, and where layers may be rewritten that is a search
of its own. So every stage begins with a cheap estimate that is not above what it takes; the path that is best by the
estimates is looked at, and the stages of it are found out, until a path is best that is known in all its parts. This is
the lazy shortest path search of Dellin and Srinivasa (A Unifying Formalism for Shortest Path Problems with Expensive
Edge Evaluations via Lazy Best-First Search over Paths with Edge Selectors, ICAPS 2016), for the largest edge instead of
the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST
from memsched.search.run import Run

if TYPE_CHECKING:
    import numpy as np

__all__ = ["RelayCosts", "RelaySplit", "StageRange", "search"]

StageRange = tuple[int, int]
"""The first place of a stage, and the place behind it."""


class RelayCosts(Protocol):
    """What stages need of the block, bytes."""

    def estimate(self, first: int, last: int) -> int:
        """Return what a stage does not need less than, or hardly: cheap, as it is asked of every pair of places."""

    def known(self, first: int, last: int) -> int | None:
        """Return what can be had already; None where the stage was not found out."""

    def find_out(self, stage: StageRange) -> tuple[int, int, bool]:
        """Return an estimate and a figure that can be had, and whether there is nothing more to be found out.

        Asked again of a stage of which there is, it takes the next step.
        """

    def least(self, stage: StageRange) -> int:
        """Return what a stage that was found out needs by its sizes alone, whatever more is found out about it."""


class RelaySplit(FrozenValue, frozen=True):
    """Stages.

    Attributes:
        stages: In order, each beginning where the one before ends.
        needed: What the largest needs of the block, bytes.
        estimate: No stages need less, by the estimates and by what was found of those that were found out.
        least: No stages need less, by the estimates and by the sizes of those that were found out.
        looked_at: Stages that were found out.
        ended: By itself, as there was nothing left to find out.
    """

    stages: tuple[StageRange, ...]
    needed: int
    estimate: int
    least: int
    looked_at: int
    ended: bool


def search(places: Sequence[int], costs: RelayCosts, run: Run, *, most: int | None, enough: int | None) -> RelaySplit:
    """Return the stages whose largest needs least, of these the fewest; at any time the best that is known.

    Args:
        places: Where may be cut, rising; the first and the last are the ends.
        most: How many stages there may be; None for any number.
        enough: Bytes of which no fewer are wanted: the fewest stages within them are returned.
    """
    import numpy as np

    count = len(places)
    low = np.full((count, count), LARGEST, np.int64)
    high = np.full((count, count), LARGEST, np.int64)
    least = np.full((count, count), LARGEST, np.int64)
    open_ = np.ones((count, count), bool)
    for i in range(count):
        for j in range(i + 1, count):
            low[i, j] = least[i, j] = costs.estimate(places[i], places[j])
            had = costs.known(places[i], places[j])
            if had is not None:
                low[i, j], high[i, j] = min(low[i, j], had), had
    looked_at: set[StageRange] = set()

    def look(i: int, j: int) -> None:
        below, above, done = costs.find_out((places[i], places[j]))
        low[i, j], high[i, j] = below, min(above, high[i, j])
        least[i, j] = costs.least((places[i], places[j]))
        open_[i, j] = not done
        looked_at.add((i, j))

    look(0, count - 1)
    bound = 0
    while True:
        best = _largest(high, most)
        bound = _largest(low, most)
        wanted = max(bound, enough or 0)
        path = _fewest(low, wanted)
        ended = best <= wanted and len(_fewest(high, wanted)) <= len(path)
        if ended or run.over():
            break
        unknown = [(i, j) for i, j in path if open_[i, j] and high[i, j] > wanted]
        fresh = [pair for pair in unknown if high[pair] >= LARGEST]
        # Files are made in milliseconds; the next step may take seconds: first comes what most likely needs too much.
        for i, j in fresh or [max(unknown, key=lambda pair: (int(low[pair]), pair))]:
            look(i, j)
        run.tell("stages", best, min(bound, best))
    stages = _fewest(high, max(best, enough or 0))
    needed = max(int(high[pair]) for pair in stages)
    found = tuple((places[i], places[j]) for i, j in stages)
    return RelaySplit(
        stages=found,
        needed=needed,
        estimate=min(bound, needed),
        least=min(_largest(least, most), needed),
        looked_at=len(looked_at),
        ended=ended,
    )


def _largest(costs: np.ndarray[Any, Any], most: int | None) -> int:
    """Return the least largest cost of a path from the first place to the last."""
    import numpy as np

    count = len(costs)
    if most is None or most >= count - 1:
        best = np.zeros(count, np.int64)
        for j in range(1, count):
            best[j] = np.maximum(best[:j], costs[:j, j]).min()
        return int(best[-1])
    best = np.full(count, LARGEST, np.int64)
    best[0] = 0
    for _ in range(most):
        # One stage more, or none: what is reached stays so.
        best = np.minimum(best, np.maximum(best[:, None], costs).min(axis=0))
    return int(best[-1])


def _fewest(costs: np.ndarray[Any, Any], limit: int) -> list[StageRange]:
    """Return the path of fewest stages whose costs are within ``limit``; of these the one with the least sum."""
    count = len(costs)
    best: list[tuple[int, int] | None] = [None] * count
    before = [0] * count
    best[0] = (0, 0)
    for j in range(1, count):
        for i in range(j):
            known, cost = best[i], int(costs[i, j])
            if known is None or cost > limit:
                continue
            now = (known[0] + 1, known[1] + cost)
            held = best[j]
            if held is None or now < held:
                best[j], before[j] = now, i
    path, place = [], count - 1
    while place:
        path.append((before[place], place))
        place = before[place]
    return path[::-1]
