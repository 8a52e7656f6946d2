"""The errors that a user can cause, each with the exit code it leads to."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Sequence
from typing import Any

__all__ = [
    "BudgetError",
    "GraphError",
    "InternalError",
    "MemschedError",
    "ModelError",
    "OutputError",
    "ReportError",
    "RuntimeUnavailableError",
    "TargetError",
    "UnknownShapeError",
    "UsageError",
    "VerificationError",
]


class MemschedError(Exception):
    """Base of everything that ends a command with one line instead of a traceback: ``location: problem; action``.

    Attributes:
        code: Which problem it is, in words joined by hyphens. It stays the same while texts are improved.
        problem: What is wrong.
        location: The file, tensor, operator or option at fault; empty if the problem names it.
        action: What the user can do; empty if there is nothing, or only one thing that goes without saying.
    """

    exit_code = 1
    code = "failed"

    def __init__(self, problem: str = "", *, code: str = "", location: str = "", action: str = "") -> None:
        super().__init__(problem)
        self.problem, self.location, self.action = problem, location, action
        if code:
            self.code = code

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        return f"{where}{self.problem}; {self.action}" if self.action else f"{where}{self.problem}"

    def at(self, location: str) -> MemschedError:
        """Return the same error, in one line, with ``location`` in front of its own."""
        moved = copy.copy(self)
        moved.problem = " ".join(self.problem.split())
        moved.location = f"{location}: {self.location}" if self.location else location
        return moved


class ModelError(MemschedError):
    """A model file is unreadable, truncated, contradictory or not supported."""

    code = "model"


class GraphError(ModelError):
    """A graph is not a valid DAG: a cycle, a tensor without or with two producers, a bad size."""

    code = "graph"


class UnknownShapeError(ModelError):
    """Sizes that cannot be inferred; the action names the options that state them.

    Attributes:
        options: Words of a command line.
        computed: Values that the model computes and that others follow from, each with an open axis; None if not even
            the number of axes is known.
    """

    code = "unknown-shape"

    def __init__(
        self,
        problem: str,
        options: Sequence[str] = (),
        *,
        location: str = "",
        computed: Sequence[tuple[str, int | None]] = (),
    ) -> None:
        action = f"state it with {shlex.join(options)}" if options else ""
        super().__init__(problem, location=location, action=action)
        self.options, self.computed = tuple(options), tuple(computed)


class TargetError(MemschedError):
    """A target's TOML file is wrong."""

    code = "target"


class OutputError(MemschedError):
    """An output cannot be written: missing folder, no permission, full disk, or it would overwrite an input."""

    code = "output"


class ReportError(MemschedError):
    """A report is unreadable, cut off, of another version, or contradicts itself."""

    code = "report"


class RuntimeUnavailableError(MemschedError):
    """A runtime that was requested is not installed."""

    code = "runtime-missing"


class BudgetError(MemschedError):
    """The best result found misses the budget, and nobody asked for it all the same: nothing is written.

    Attributes:
        result: That result; None if the error has none.
    """

    code = "budget-missed"
    exit_code = 3
    result: Any = None


class InternalError(MemschedError):
    """A result did not pass the independent checker: a defect of memsched, never written out."""

    code = "internal"


class UsageError(MemschedError):
    """Options that contradict each other or do not apply to the given model."""

    code = "usage"
    exit_code = 2


class VerificationError(MemschedError):
    """What was made of a model does not compute the same outputs; it is not written."""

    code = "outputs-differ"
