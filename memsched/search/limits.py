"""How much a search may cost, and what makes it repeatable."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from memsched.base.errors import UsageError

__all__ = ["LOOK_EVERY", "POLL_SECONDS", "QUICK", "SHORT_ROUNDS", "Limits"]

POLL_SECONDS: Final = 0.05
"""Between two looks at whether what is waited for has ended, or the one who waits wants to stop."""

LOOK_EVERY: Final = 8
"""States, or nodes, of a search after which it asks whether to stop."""

SHORT_ROUNDS: Final = 3
"""`Limits.rounds` of an exact search for addresses: what it does not find in the first it seldom finds later."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a solver may spend; `Run` has since when, and on which clock.

    Attributes:
        time_limit: Seconds for the whole search; None for no limit.
        effort: Work for the whole search, about as much as an idle machine does in so many seconds; None for no limit.
            It is counted, not timed: what a search ends with is the same on every machine, however busy.
        seed: Seed of all random choices.
        workers: Processes that may search independent parts.
        rounds: Rounds of growing effort that a search may go through without finding anything; None: until the time
            is up; 0: only what is quick, without an exact search. Where it ends a search before the time does, the
            result does not depend on the machine's speed.
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
            raise UsageError(
                f"--time-limit {self.time_limit} is not a number of seconds",
                code="option-range",
                action="give 0 or more",
            )
        if self.effort is not None and not self.effort >= 0:
            raise UsageError(
                f"--effort {self.effort} is not an amount of work", code="option-range", action="give 0 or more"
            )
        if not 0 <= self.seed < 2**31:
            raise UsageError(
                f"--seed {self.seed} is out of range",
                code="option-range",
                action=f"give a number from 0 to {2**31 - 1}",
            )
        if self.workers < 1:
            raise UsageError(f"--workers {self.workers} is not possible", code="option-range", action="give 1 or more")


QUICK: Final = Limits(None, rounds=0)
"""For what can be found without a search that deserves a limit."""
