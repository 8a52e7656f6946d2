"""Which of a search's points are made into models, and until when: what decides is what the runtime requires.

A search compares peaks of liveness. What a model requires may be more: its runtime's own planner, or gaps between
tensors. So a point meets a budget only where its model does. A larger budget is never met less often: all that is
tried for a smaller one, or without one, is tried for it, too, unless it is met before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["Lookout", "fewest", "one_meets", "told_first", "try_points"]

_FIRST_TRIES = 4
"""Points whose peak is within the budget, the least work first, that are looked at before those of least peak."""

_LAST_TRIES = 8
"""Points of least peak that are looked at where none with a peak within the budget meets it."""

_LOOKS = 4
"""How often a model for a budget is looked for before a search has ended: each look takes some of its time."""

_LOOK_STEP = 0.02
"""By how much the peak must have fallen before it is looked for again."""


class _Point(Protocol):
    @property
    def peak(self) -> int:
        """Bytes."""


_P = TypeVar("_P", bound=_Point)
_Q = TypeVar("_Q")


def try_points(
    points: Sequence[_P],
    budget: int | None,
    make: Callable[[_P], int],
    *,
    at_most: Callable[[_P], int] | None = None,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Make points until one meets the budget: a few of little work first, those of least peak, then the others.

    Args:
        points: With rising work and falling peaks.
        budget: Bytes that a model may require; None: as little as can be.
        make: Makes a point's model and returns the bytes that it requires.
        at_most: Returns bytes that a point's model requires at most, quicker than by making it.
        over: Whether no further point may be made.
    """
    tries = _Tries(points, budget, make, at_most, over)
    fitting = tries.fitting()
    if tries.met_by(fitting[:_FIRST_TRIES]):
        return
    # Here nothing depends on the budget but the end.
    last = _least_peaks(points)
    told: dict[int, int] = {}
    for number in last:
        # Each takes a moment: what is not known in time comes after what is.
        if at_most is None or (told and over()):
            break
        told[number] = at_most(points[number])
    last.sort(key=lambda number: (number not in told, told.get(number, points[number].peak)))
    least: int | None = None
    for number in last:
        if tries.known and over():
            return
        if least is None or points[number].peak < least:
            least = tries.required(number) if least is None else min(least, tries.required(number))
            if budget is not None and least <= budget:
                return
    tries.met_by(fitting[_FIRST_TRIES:])


def told_first(points: Sequence[_P], budget: int | None) -> list[int]:
    """Return the numbers of the points of which `try_points` asks what their models require at most."""
    fitting = [number for number, point in enumerate(points) if budget is not None and point.peak <= budget]
    return list(dict.fromkeys((*fitting[:_FIRST_TRIES], *_least_peaks(points))))


def _least_peaks(points: Sequence[_P]) -> list[int]:
    return sorted(range(len(points)), key=lambda number: (points[number].peak, number))[:_LAST_TRIES]


def one_meets(
    points: Sequence[_P],
    budget: int,
    make: Callable[[_P], int],
    *,
    at_most: Callable[[_P], int] | None = None,
    over: Callable[[], bool] = lambda: False,
) -> bool:
    """Make the first point of least work that is known to meet the budget; return whether there is one.

    Arguments as of `try_points`, which tries the same points first.
    """
    tries = _Tries(points, budget, make, at_most, over)
    return tries.met_by(tries.fitting()[:_FIRST_TRIES])


def fewest(
    parts: Sequence[_Q],
    most: int,
    requires: Callable[[Sequence[_Q]], float],
    coarser: Callable[[_Q], Iterable[_Q]],
) -> Sequence[_Q]:
    """Return as few of the parts, each as coarse as it can be, as a model within a limit needs.

    Args:
        parts: Each may be done alone.
        most: Bytes that the model may require; with all the parts it requires no more.
        requires: Returns the bytes that a model with some of them requires.
        coarser: Returns what may take a part's place.
    """
    chosen = list(parts)
    for part in parts:
        others = [one for one in chosen if one != part]
        if others and requires(others) <= most:
            chosen = others
    for number in range(len(chosen)):
        found: _Q | None = chosen[number]
        while found is not None:
            chosen[number] = found
            ways = ((one, [*chosen[:number], one, *chosen[number + 1 :]]) for one in coarser(found))
            found = next((one for one, way in ways if requires(way) <= most), None)
    return chosen


class _Tries(Generic[_P]):
    """What was made so far, and what it requires."""

    def __init__(
        self,
        points: Sequence[_P],
        budget: int | None,
        make: Callable[[_P], int],
        at_most: Callable[[_P], int] | None,
        over: Callable[[], bool],
    ) -> None:
        self._points, self._budget, self._make, self._at_most, self._over = points, budget, make, at_most, over
        self.known: dict[int, int] = {}

    def fitting(self) -> list[int]:
        """Return the points whose peak is within the budget; none where there is no budget."""
        return [number for number, point in enumerate(self._points) if self._within(point.peak)]

    def required(self, number: int) -> int:
        """Return the bytes that a point's model requires, made once."""
        if number not in self.known:
            self.known[number] = self._make(self._points[number])
        return self.known[number]

    def met_by(self, numbers: Sequence[int]) -> bool:
        """Make those that could meet the budget until one does, or the time is up; return whether one does."""
        for number in numbers:
            if self._over():
                break
            point = self._points[number]
            if (self._at_most is None or self._within(self._at_most(point))) and self._within(self.required(number)):
                return True
        return False

    def _within(self, bytes_: int) -> bool:
        return self._budget is not None and bytes_ <= self._budget


class Lookout(Generic[_P]):
    """Checks during a search, a few times at most, whether what it found so far meets the budget.

    Attributes:
        at: Bytes: the peak at or below which to look next; None: not again.

    Args:
        meets: Whether one of a few points meets the budget.
    """

    def __init__(self, budget: int, meets: Callable[[Sequence[_P]], bool]) -> None:
        self._meets, self._left = meets, _LOOKS
        self.at: int | None = budget

    def sees(self, points: Sequence[_P]) -> bool:
        """Return whether one of these meets the budget: then the search may be left."""
        least = min((point.peak for point in points), default=None)
        if self.at is None or least is None or least > self.at:
            return False
        if self._meets(points):
            return True
        self._left -= 1
        self.at = int((1 - _LOOK_STEP) * least) if self._left else None
        return False
