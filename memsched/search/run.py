"""A search under way, as one value: its limits, its start, its stop function and its progress callback."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from memsched.search.limits import Limits
from memsched.search.meter import WorkMeter
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
        meter: What all searches of a command have done so far; every part of its run draws from it.
        done_before: What the meter showed when this part began: its limit of work counts from there.
    """

    limits: Limits
    started: float = field(default_factory=_now)
    stop: Callable[[], bool] = field(default=_never, compare=False)
    on_progress: Callable[[Progress], None] = field(default=_nobody, compare=False)
    clock: Callable[[], float] = field(default=_now, compare=False)
    meter: WorkMeter = field(default_factory=WorkMeter, compare=False)
    done_before: float = 0.0

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

    def effort(self) -> float | None:
        """Return the work that may still be done, as `Limits.effort`, never less than 0; None for no limit."""
        limit = self.limits.effort
        return None if limit is None else max(0.0, limit - (self.meter.done - self.done_before))

    def spend(self, work: float) -> None:
        """Count work that was done, as `Limits.effort`."""
        self.meter.done += work

    def over(self) -> bool:
        """Whether to end: time or work are used up, or the user wants the best result now."""
        return self.effort() == 0 or self.stop() or self.late()

    def tell(self, stage: str, best_peak: int, lower_bound: int | None) -> None:
        """Say how far the search is; bytes."""
        self.on_progress(Progress(stage, best_peak, lower_bound, self.elapsed()))

    def again(self, limits: Limits) -> Run:
        """Return a run with other limits that begins now."""
        return dataclasses.replace(self, limits=limits, started=self.clock(), done_before=self.meter.done)

    def anew(self, time_limit: float | None) -> Run:
        """Return a run that begins now, for so many seconds and the work that is left of this one."""
        return self.again(dataclasses.replace(self.limits, time_limit=time_limit, effort=self.effort()))

    def rest(self) -> Run:
        """Return a run whose whole limit of work is what is left of this one; as it is with a limit of time."""
        return self if self.limits.effort is None else self._with_work(self.effort())

    def taking(self, work: float) -> Run:
        """Return a run that may do so much work, as far as it is left of this one."""
        left = self.effort()
        return self._with_work(work if left is None else min(work, left))

    def apart(self, limits: Limits) -> Run:
        """Return a run whose result depends on its limits alone: nothing ends it, and its work counts here, too."""
        return Run(limits, meter=self.meter, done_before=self.meter.done)

    def quiet(self) -> Run:
        """Return the same run without a progress callback."""
        return dataclasses.replace(self, on_progress=_nobody)

    def paying(self, work: float) -> Run:
        """Return the same run, which counts so much work whenever it is asked to end: for searches that count none."""

        def stop() -> bool:
            self.spend(work)
            return self.effort() == 0 or self.stop()

        return dataclasses.replace(self, stop=stop)

    def until(self, share: float) -> Run:
        """Return the same run up to the moment at which ``share`` of its work, or else of its time, is used up."""
        limit, effort = self.limits.time_limit, self.limits.effort
        if effort is not None:
            return self._of_effort(share * effort)
        return self if limit is None else self._timed(share * limit)

    def within(self, share: float) -> Run:
        """Return a run that may take this share of the limit of work, or else of what is left of the time.

        Of work it is a share of all, however much was used, as far as so much is left: then it does not depend on what
        was tried beside.
        """
        if self.limits.effort is not None:
            return self._with_work(min(share * self.limits.effort, self.effort() or 0.0))
        if self.limits.time_limit is None:
            return self
        return self._timed(self.elapsed() + self.remaining() * share)

    def _with_work(self, effort: float | None) -> Run:
        return dataclasses.replace(self._of_effort(effort), done_before=self.meter.done)

    def _of_effort(self, effort: float | None) -> Run:
        return dataclasses.replace(self, limits=dataclasses.replace(self.limits, effort=effort))

    def _timed(self, seconds: float) -> Run:
        return dataclasses.replace(self, limits=dataclasses.replace(self.limits, time_limit=seconds))
