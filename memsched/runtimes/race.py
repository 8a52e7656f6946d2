"""Two models that take turns in one process: how much longer one takes than the other. The child process's side.

What else the machine does meets both alike. Threads of a runtime wait busily for the next run, up to 85 ms after the
last one as ONNX Runtime sets them up: what they take would count for the other model, so each turn begins once the
process is at rest.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from memsched.frozen import FrozenValue

__all__ = ["Race", "Turn", "is_vague", "race", "rest"]

_WAIT: Final = 0.005
"""Seconds after which is looked again whether threads work."""

_MOST_WAITS: Final = 40
_AT_REST: Final = 0.1
"""Share of a wait that a process at rest works at most."""

_TICK: Final = 1e-6
_MOST_RUNS: Final = 500
"""Runs of a turn: the smallest models take a few microseconds each, and so many outlast the steps of the clock."""

_KNOWN: Final = 0.02
"""Relative error up to which a median ratio counts as known: what is said of times shall hold within 5 %."""

_ERROR_OF_MEDIAN: Final = 0.93
"""Standard error of a median of n normal values, times the square root of n, by the range of their middle half."""


class Turn(FrozenValue, frozen=True):
    """Seconds that a model took for one run, by the clock and of the processor, the mean of a turn's runs."""

    clock: float
    processor: float


class Race(FrozenValue, frozen=True):
    """Turns of two models, in pairs."""

    rounds: tuple[tuple[Turn, Turn], ...]

    @property
    def processor(self) -> float:
        """The median ratio of the second's processor time to the first's."""
        return statistics.median(self.processor_ratios)

    @property
    def clock(self) -> float:
        """The median ratio of the second's time by the clock to the first's."""
        return statistics.median(second.clock / first.clock for first, second in self.rounds)

    @property
    def processor_ratios(self) -> list[float]:
        """Per round the ratio of the second's processor time to the first's."""
        return [second.processor / first.processor for first, second in self.rounds]


def rest() -> None:
    """Wait until no thread of this process works, 0.2 s at most."""
    for _ in range(_MOST_WAITS):
        worked = time.process_time()
        time.sleep(_WAIT)
        if time.process_time() - worked < _AT_REST * _WAIT:
            return


def is_vague(ratios: Sequence[float]) -> bool:
    """Whether more rounds are needed to know the median ratio within 2 %, by how much the ratios differ."""
    if len(ratios) < 2:
        return True
    low, middle, high = statistics.quantiles(ratios, n=4)
    return _ERROR_OF_MEDIAN * (high - low) > _KNOWN * middle * math.sqrt(len(ratios))


def race(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    rounds: int,
    turn: float = 0.0,
    goes_on: Callable[[Sequence[float]], bool] = lambda _: False,
    ends: Callable[[int], bool] = lambda _: False,
) -> Race:
    """Run two models in turns; each begins every other round, as what the first turn of a round costs meets both alike.

    Args:
        rounds: At least, unless it ends.
        turn: Processor seconds that a turn takes at least; several runs of a small model make one.
        goes_on: Whether more rounds shall follow; it is given the ratios so far.
        ends: Whether no round shall follow, after so many.
    """
    for model in (first, second):
        model()
    runs = _runs(turn, max(_timed(model, 1).processor for model in (first, second))) if turn else 1
    found: list[tuple[Turn, Turn]] = []
    while not ends(len(found)):
        turns = [Turn(0.0, 0.0)] * 2
        for place in (0, 1) if len(found) % 2 else (1, 0):
            rest()
            turns[place] = _timed((first, second)[place], runs)
        found.append((turns[0], turns[1]))
        if len(found) >= rounds and not goes_on(Race(tuple(found)).processor_ratios):
            break
    return Race(tuple(found))


def _runs(turn: float, seconds: float) -> int:
    return max(1, min(_MOST_RUNS, math.ceil(turn / seconds)))


def _timed(model: Callable[[], object], runs: int) -> Turn:
    started, worked = time.perf_counter(), time.process_time()
    for _ in range(runs):
        model()
    clock, processor = time.perf_counter() - started, time.process_time() - worked
    return Turn(max(clock, _TICK) / runs, max(processor, _TICK) / runs)
