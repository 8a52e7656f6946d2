"""The errors that a user can cause, each with the exit code it leads to."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

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
    """Base of everything that ends a command with one line instead of a traceback.

    The message names the file, the tensor or the option at fault and says what to do.
    """

    exit_code = 1


class ModelError(MemschedError):
    """A model file is unreadable, truncated, contradictory or not supported."""


class GraphError(ModelError):
    """A graph is not a valid DAG: a cycle, a tensor without or with two producers, a bad size."""


class UnknownShapeError(ModelError):
    """Sizes that cannot be inferred; the message names the options that state them.

    Attributes:
        what: The message without the options.
        options: Words of a command line, with <...> where a person must choose.
    """

    def __init__(self, what: str, options: Sequence[str] = ()) -> None:
        super().__init__(f"{what}; state it with {shlex.join(options)}" if options else what)
        self.what = what
        self.options = tuple(options)

    def __reduce__(self) -> tuple[type[UnknownShapeError], tuple[str, tuple[str, ...]]]:
        return type(self), (self.what, self.options)


class TargetError(MemschedError):
    """A target's TOML file is wrong."""


class OutputError(MemschedError):
    """An output cannot be written: missing folder, no permission, full disk, or it would overwrite an input."""


class ReportError(MemschedError):
    """A report is unreadable, cut off, of another version, or contradicts itself."""


class RuntimeUnavailableError(MemschedError):
    """A runtime that was requested is not installed."""


class BudgetError(MemschedError):
    """The best result found misses the budget, and nobody asked for it all the same: nothing is written."""

    exit_code = 3


class InternalError(MemschedError):
    """A result did not pass the independent checker: a defect of memsched, never written out."""


class UsageError(MemschedError):
    """Options that contradict each other or do not apply to the given model."""

    exit_code = 2


class VerificationError(MemschedError):
    """What was made of a model does not compute the same outputs; it is not written."""
