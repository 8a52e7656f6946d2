"""The seconds that something takes: once, the quickest of several times, or the median of turns beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["Stopwatch", "best_of", "median_of", "medians", "timed"]

_Result = TypeVar("_Result")


class Stopwatch:
    """Seconds since it was made, for what is no single call."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Return the seconds until now."""
        return time.perf_counter() - self._started


def timed(action: Callable[[], _Result]) -> tuple[_Result, float]:
    """Return a result and the seconds it took."""
    watch = Stopwatch()
    return action(), watch.seconds


def best_of(repeats: int, action: Callable[[], _Result]) -> tuple[_Result, float]:
    """Return the result and the seconds of the quickest of ``repeats`` runs."""
    return min((timed(action) for _ in range(repeats)), key=lambda run: run[1])


def medians(actions: Sequence[Callable[[], object]], *, least: int, most: int, seconds: float) -> list[float]:
    """Return the median seconds of each action; they take turns, so that a slower machine slows all of them.

    Args:
        least: Turns at least.
        most: Turns at most; between the two they end after so many ``seconds`` for each action.
    """
    taken: list[list[float]] = [[] for _ in actions]
    while len(taken[0]) < least or (len(taken[0]) < most and sum(map(sum, taken)) < seconds * len(actions)):
        for action, times in zip(actions, taken, strict=True):
            times.append(timed(action)[1])
    return [statistics.median(times) for times in taken]


def median_of(count: int, seconds: Callable[[], float]) -> float:
    """Return the median of what ``count`` calls measure themselves."""
    return statistics.median(seconds() for _ in range(count))
