"""How much a search may cost, and what makes it repeatable."""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import dataclass, field

from memsched.errors import UsageError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a solver may spend. The clock is `time.monotonic`, whose start the caller states.

    Attributes:
        time_limit: Seconds for the whole search; None for no limit.
        effort: Work for the whole search, about as much as an idle machine does in so many seconds; None for no limit.
            It is counted, not timed: what a search ends with is the same on every machine, however busy.
        seed: Of whatever is random.
        workers: Processes that may search independent parts.
        rounds: Rounds of growing effort that a search may go through without finding anything; None: until the time
            is up. Where it ends a search before the time does, the result does not depend on the machine's speed.
        executor: Where independent parts are searched instead of in processes of this machine: anything with the
            interface of `concurrent.futures`, such as what a dask client's ``get_executor`` gives.

    Raises:
        UsageError: A negative time limit or effort, a negative seed or no worker.
    """

    time_limit: float | None = 60.0
    seed: int = 0
    workers: int = 1
    rounds: int | None = None
    executor: Executor | None = field(default=None, compare=False, repr=False)
    effort: float | None = None

    def __post_init__(self) -> None:
        if self.time_limit is not None and not self.time_limit >= 0:
            raise UsageError(f"--time-limit {self.time_limit} is no number of seconds: give 0 or more")
        if self.effort is not None and not self.effort >= 0:
            raise UsageError(f"--effort {self.effort} is no amount of work: give 0 or more")
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"--seed {self.seed} is out of range: give a number from 0 to {2**31 - 1}")
        if self.workers < 1:
            raise UsageError(f"--workers {self.workers} is not possible: give 1 or more")

    def deadline(self, started: float) -> float:
        """Return the moment, on the clock of ``started``, at which a search begun then must end; may be infinite."""
        return math.inf if self.time_limit is None else started + self.time_limit

    def remaining(self, started: float, now: float) -> float:
        """Return the seconds left at ``now`` of a search begun at ``started``; 0 when used up, may be infinite."""
        return max(0.0, self.deadline(started) - now)
