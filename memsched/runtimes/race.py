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

from memsched.base.frozen import FrozenValue
from memsched.runtimes.values import CLOSE

__all__ = ["IDLE", "Race", "RaceRule", "Turn", "is_vague", "most_times", "race", "rest"]

_WAIT: Final = 0.005
"""Seconds after which is looked again whether threads work."""

IDLE: Final = 0.1
"""Share of a time that counts as none: of working in a wait at rest, of waiting for a processor while computing."""

_MOST_WAITS: Final = 40

_TICK: Final = time.get_clock_info("process_time").resolution
_MOST_RUNS: Final = 500
"""Runs of a turn: the smallest models take a few microseconds each, and so many outlast the steps of the clock."""

_ERROR_OF_MEDIAN: Final = math.sqrt(math.pi / 2) / (2 * statistics.NormalDist().inv_cdf(3 / 4))
"""Standard error of a median of n normal values, times the square root of n, by the range of their middle half."""


_NOISE: Final = 0.05
"""Share of the time that is chance where two runs execute the same: none is permitted by less."""


def most_times(slowdown: float | None) -> float:
    """Return how many times as long a file may take; infinite for any.

    Args:
        slowdown: Time that may be added, in percent; None for any.
    """
    return math.inf if slowdown is None else 1 + max(_NOISE, slowdown / 100)


class Turn(FrozenValue, frozen=True):
    """Seconds that a model took for one run, by the clock and of the processor, the mean of a turn's runs."""

    clock: float
    processor: float


class RaceRule(FrozenValue, frozen=True):
    """How often two models take turns.

    Attributes:
        rounds: At least, if ``seconds`` permit.
        most: Rounds at most; None for no more than ``rounds``.
        least: Rounds however long they take; None for ``rounds``.
        seconds: After which no round is added; None for no limit.
        turn: Processor seconds that a turn takes at least; several runs of a small model make one.
        limit: The ratio that decides: rounds are added while those so far lie on both sides of it. None: they are added
            until the median is known.
    """

    rounds: int
    most: int | None = None
    least: int | None = None
    seconds: float | None = None
    turn: float = 0.0
    limit: float | None = None

    def goes_on(self, ratios: Sequence[float], seconds: float) -> bool:
        """Return whether another round follows those with these ratios, which took so many seconds."""
        done, late = len(ratios), self.seconds is not None and seconds > self.seconds
        if done < (self.rounds if self.least is None else self.least):
            return True
        if late or done >= (self.most or self.rounds):
            return False
        return done < self.rounds or (is_vague(ratios) if self.limit is None else _is_near(self.limit, ratios))


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
    def quickest(self) -> tuple[Turn, Turn]:
        """The least seconds of each, by the clock and of the processor."""
        first, second = (
            Turn(min(one.clock for one in turns), min(one.processor for one in turns))
            for turns in zip(*self.rounds, strict=True)
        )
        return first, second

    @property
    def processor_ratios(self) -> list[float]:
        """Per round the ratio of the second's processor time to the first's."""
        return [second.processor / first.processor for first, second in self.rounds]


def rest() -> None:
    """Wait until no thread of this process works, 0.2 s at most."""
    for _ in range(_MOST_WAITS):
        worked = time.process_time()
        time.sleep(_WAIT)
        if time.process_time() - worked < IDLE * _WAIT:
            return


def is_vague(ratios: Sequence[float]) -> bool:
    """Whether more rounds are needed to know the median ratio within 2 %, by how much the ratios differ."""
    if len(ratios) < 2:
        return True
    low, middle, high = statistics.quantiles(ratios, n=4)
    return _ERROR_OF_MEDIAN * (high - low) > CLOSE * middle * math.sqrt(len(ratios))


def _is_near(limit: float, ratios: Sequence[float]) -> bool:
    """Return whether the middle half of the ratios lies on both sides of a limit."""
    low, _, high = statistics.quantiles(ratios, n=4)
    return low <= limit <= high


def race(
    first: Callable[[], object],
    second: Callable[[], object],
    rule: RaceRule,
    *,
    start: Callable[[int], object] = lambda _: None,
) -> Race:
    """Run two models in turns; each begins every other round, as what the first turn of a round costs meets both alike.

    Args:
        start: Makes one of both, 0 or 1, ready for a turn, which begins after that.
    """
    models = (first, second)
    for place, model in enumerate(models):
        start(place)
        model()
    runs = _runs(rule.turn, max(_timed(model, 1).processor for model in models)) if rule.turn else 1
    found: list[tuple[Turn, Turn]] = []
    begun = time.perf_counter()
    while not found or rule.goes_on(Race(tuple(found)).processor_ratios, time.perf_counter() - begun):
        turns = [Turn(0.0, 0.0)] * 2
        for place in (0, 1) if len(found) % 2 else (1, 0):
            start(place)
            rest()
            turns[place] = _timed(models[place], runs)
        found.append((turns[0], turns[1]))
    return Race(tuple(found))


def _runs(turn: float, seconds: float) -> int:
    return max(1, min(_MOST_RUNS, math.ceil(turn / seconds)))


def _timed(model: Callable[[], object], runs: int) -> Turn:
    started, worked = time.perf_counter(), time.process_time()
    for _ in range(runs):
        model()
    clock, processor = time.perf_counter() - started, time.process_time() - worked
    return Turn(max(clock, _TICK) / runs, max(processor, _TICK) / runs)
