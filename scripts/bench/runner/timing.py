"""The seconds that something takes: once, the quickest of several times, or the median of turns beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["best_of", "medians", "timed"]

_Result = TypeVar("_Result")


def timed(action: Callable[[], _Result]) -> tuple[_Result, float]:
    """Return a result and the seconds it took."""
    started = time.perf_counter()
    result = action()
    return result, time.perf_counter() - started


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
