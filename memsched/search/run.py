"""A search under way, as one value: its limits, its start, its stop function and its progress callback."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from memsched.search.limits import Limits
from memsched.search.progress import Progress

__all__ = ["Run"]


def _now() -> float:
    return time.monotonic()


def _never() -> bool:
    return False


def _nobody(_: Progress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Run:
    """A search that has begun. Callers pass it down whole, or a share of it with `within`.

    Attributes:
        limits: Of the whole run, or of the part of it that may be taken.
        started: When its time limit began, on ``clock``; by default now.
        stop: Polled often; True ends the search with the best so far.
        on_progress: Called with stages, better results and bounds.
        clock: Seconds, as of `time.monotonic`.
    """

    limits: Limits
    started: float = field(default_factory=_now)
    stop: Callable[[], bool] = field(default=_never, compare=False)
    on_progress: Callable[[Progress], None] = field(default=_nobody, compare=False)
    clock: Callable[[], float] = field(default=_now, compare=False)

    @staticmethod
    def of(
        limits: Limits,
        started: float | None = None,
        *,
        stop: Callable[[], bool] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Run:
        """Return ``run``, or a new run with the limits alone."""
        return Run(limits, _now() if started is None else started, stop or _never, on_progress or _nobody)

    def deadline(self) -> float:
        """Return when the time is up, on ``clock``; may be infinite."""
        limit = self.limits.time_limit
        return math.inf if limit is None else self.started + limit

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return self.clock() - self.started

    def remaining(self) -> float:
        """Return the seconds that are left, 0 when they are used up; may be infinite."""
        return max(0.0, self.deadline() - self.clock())

    def late(self) -> bool:
        """Whether the time is up."""
        return self.clock() >= self.deadline()

    def over(self) -> bool:
        """Whether to end: the time is up, or the user wants the best result now."""
        return self.late() or self.stop()

    def tell(self, stage: str, best_peak: int, lower_bound: int | None) -> None:
        """Say how far the search is; bytes."""
        self.on_progress(Progress(stage, best_peak, lower_bound, self.elapsed()))

    def again(self, limits: Limits) -> Run:
        """Return a run with other limits that begins now."""
        return dataclasses.replace(self, limits=limits, started=self.clock())

    def quiet(self) -> Run:
        """Return the same run without a progress callback."""
        return dataclasses.replace(self, on_progress=_nobody)

    def asking(self, most: int) -> Run:
        """Return the same run, which ends once it was asked ``most`` times: for searches that count no work."""
        asked = itertools.count()
        return dataclasses.replace(self, stop=lambda: next(asked) >= most or self.stop())

    def until(self, share: float) -> Run:
        """Return the same run up to the moment at which ``share`` of its time limit is used up."""
        limit = self.limits.time_limit
        return self if limit is None else self._timed(share * limit)

    def within(self, share: float) -> Run:
        """Return a run that may take this share of what is left of the time, or else of the limit of work."""
        if self.limits.time_limit is None:
            if self.limits.effort is None:
                return self
            return dataclasses.replace(self, limits=dataclasses.replace(self.limits, effort=share * self.limits.effort))
        return self._timed(self.elapsed() + self.remaining() * share)

    def _timed(self, seconds: float) -> Run:
        return dataclasses.replace(self, limits=dataclasses.replace(self.limits, time_limit=seconds))
