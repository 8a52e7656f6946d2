"""Models that run in a row, each on what the ones before it handed out: what both runtimes' child processes share.

Requests and answers are plain values, as `memsched.runtimes.child` can pass them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from memsched.runtimes.compare import compare, relative_error

__all__ = ["INTEGER_BOUNDS", "RunError", "Values", "result"]

INTEGER_BOUNDS: Final = (4, 2, 1)
"""Integers are often indices: where the first choice is out of bounds, smaller ones may not be."""

Values = dict[str, Any]
"""By name."""


class RunError(Exception):
    """Model ``number`` does not run; 0 is the whole one, or says that segments cannot be run here at all."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(" ".join(str(error).split()) or type(error).__name__)
        self.number = number


def result(run: Callable[[], tuple[list[Values], list[Values]]]) -> dict[str, Any]:
    """Return what comparing the outputs of a whole model with those of its segments says, as plain values."""
    try:
        expected, found = run()
    except RunError as failure:
        return {"failed": failure.number, "message": str(failure)}
    names = [name for name in expected[0] if name in found[0]]
    first = [one[name] for one in expected for name in names]
    second = [one[name] for one in found for name in names]
    equal, error = compare(first, second)
    return {
        "failed": None,
        "message": None,
        "equal": equal,
        "max_abs_error": error,
        "relative_error": relative_error(first, second),
        "absent": [name for name in expected[0] if name not in found[0]],
    }
