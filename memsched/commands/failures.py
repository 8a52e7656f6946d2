"""Candidates that fail: each is left out, its reason is recorded, and the next best candidate is taken.

Most failures are defects of memsched. A command goes on without the candidate and says so; with MEMSCHED_DEFECTS=raise
in the environment, as in the tests, the command ends with the error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from memsched.base.errors import (
    MemschedError,
    ModelError,
    OutputError,
    RuntimeUnavailableError,
    TargetError,
    UsageError,
    VerificationError,
)
from memsched.base.frozen import FrozenValue
from memsched.runtimes.child import ChildEndedError
from memsched.runtimes.values import short_reason

__all__ = ["DEFECTS", "CandidateFailure", "Failures", "LeftOut", "defects_end_the_run"]

DEFECTS: Final = "MEMSCHED_DEFECTS"
"""The environment variable that makes defects end the command if it is "raise"."""


REPORT_IT: Final = "please report it"
"""What messages on defects ask for."""

_OF_THE_USER: Final = (BrokenPipeError, OutputError, RuntimeUnavailableError, TargetError, UsageError)
"""What no other candidate changes."""

_ENDS: Final = (*_OF_THE_USER, ChildEndedError)
"""The same, and that the time for all candidates is over."""


class CandidateFailure(FrozenValue, frozen=True):
    """A candidate that failed.

    Attributes:
        what: The candidate, in words.
        reason: What failed.
        defect: It is an internal error, or outputs differed: a defect of memsched.
    """

    what: str
    reason: str
    defect: bool

    def told(self) -> str:
        """Return what the user is told."""
        if self.defect:
            return f"internal error in {self.what}, which was left out; {REPORT_IT}: {self.reason}"
        return f"{self.what} was left out: {self.reason}"


@dataclass(slots=True)
class Failures:
    """What failed in one run of a command.

    Attributes:
        found: Each failure once, in the order of time.
    """

    found: list[CandidateFailure] = field(default_factory=list)

    def left_out(self, what: str) -> LeftOut:
        """Return a context that records the error that ends its block, after which the command goes on.

        Args:
            what: The candidate that the block makes, in words.
        """
        return LeftOut(self, what)

    def add(self, what: str, error: Exception) -> None:
        """Record an error, once."""
        failure = CandidateFailure(what, _reason(error), not isinstance(error, ModelError))
        if failure not in self.found:
            self.found.append(failure)


class LeftOut:
    """A block that makes a candidate, which is left out if the block fails; see `Failures.left_out`."""

    def __init__(self, failures: Failures, what: str) -> None:
        self._failures, self._what = failures, what

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        """Record the error; one that only the user can do something about, or that shall end the command, passes."""
        if not isinstance(error, Exception) or isinstance(error, _ENDS):
            return False
        if defects_end_the_run() and not isinstance(error, ModelError):
            return False
        self._failures.add(self._what, error)
        return True


def defects_end_the_run() -> bool:
    """Whether a defect ends the command instead of the candidate alone."""
    return os.environ.get(DEFECTS) == "raise"


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        text = "not enough memory"
    elif not isinstance(error, MemschedError):
        text = f"{type(error).__name__}: {text}"
    elif not isinstance(error, (ModelError, VerificationError)):
        text = f"a check failed: {text}"
    return short_reason(text)
