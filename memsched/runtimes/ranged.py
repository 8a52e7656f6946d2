"""Models with dynamic dimensions, run at several sizes: what they take, how long, and whether outputs agree."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue

__all__ = ["AtSize", "RangedRace", "TimeRatio"]


class TimeRatio(FrozenValue, frozen=True):
    """The time of two models.

    Attributes:
        first: Seconds of the quickest run.
        second: The same of the other one.
        ratio: The median of its time to that of the first, over the rounds.
    """

    first: float
    second: float
    ratio: float


class RangedRace(FrozenValue, frozen=True):
    """Two models run in turns.

    Attributes:
        clock: By the clock.
        processor: The time that the processor computed, where threads that wait busily count as well.
        busy: How many times as long as it computed the first took: of one thread, above 1 where others compute too.
    """

    clock: TimeRatio
    processor: TimeRatio
    busy: float


class AtSize(FrozenValue, frozen=True):
    """A model's outputs beside those of the model as given.

    Attributes:
        equal: Bit by bit.
        error: The largest difference, relative to the largest output; None where they cannot be compared.
        message: Why not.
        given_apart, apart: Errors of the model as given, and of this one, beside accurate outputs; None: not asked for.
    """

    equal: bool
    error: float | None
    message: str | None
    given_apart: float | None = None
    apart: float | None = None
