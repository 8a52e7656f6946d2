"""Which of a search's points are made into models, and until when: what decides is what the runtime requires.

A search compares peaks of liveness. What a model requires may be more: its runtime's own planner, or gaps between
tensors. So a point meets a budget only where its model does. A larger budget is never met less often: all that is
tried for a smaller one is tried for it, too, unless it is met before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

__all__ = ["try_points"]

_LAST_TRIES = 8
"""Points of least peak that are looked at where none with a peak within the budget meets it."""


class _Point(Protocol):
    @property
    def peak(self) -> int:
        """Bytes."""


_P = TypeVar("_P", bound=_Point)


def try_points(
    points: Sequence[_P],
    budget: int | None,
    make: Callable[[_P], int],
    *,
    at_most: Callable[[_P], int] | None = None,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Make points until one meets the budget, the least work first; where none does, those of least peak.

    Args:
        points: With rising work and falling peaks.
        budget: Bytes that a model may require; None: as little as can be.
        make: Makes a point's model and returns the bytes that it requires.
        at_most: Returns bytes that a point's model requires at most, quicker than by making it.
        over: Whether no further point may be made.
    """
    known: dict[int, int] = {}

    def required(number: int) -> int:
        if number not in known:
            known[number] = make(points[number])
        return known[number]

    for number, point in enumerate(points):
        if budget is not None and point.peak <= budget and (at_most is None or at_most(point) <= budget):
            if required(number) <= budget:
                return
            if over():
                break
    # From here on nothing depends on the budget but the end.
    last = sorted(range(len(points)), key=lambda number: (points[number].peak, number))[:_LAST_TRIES]
    last.sort(key=lambda number: at_most(points[number]) if at_most else points[number].peak)
    least: int | None = None
    for number in last:
        if known and over():
            break
        if least is None or points[number].peak < least:
            least = required(number) if least is None else min(least, required(number))
            if budget is not None and least <= budget:
                break
