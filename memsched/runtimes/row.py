"""Models that run in a row, each on what the ones before it handed out: what both runtimes' child processes share.

Requests and answers are plain values, as `memsched.runtimes.child` can pass them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from memsched.runtimes.compare import compare, relative_error
from memsched.runtimes.special import THREADS, Special, rng_of
from memsched.runtimes.values import one_line

__all__ = ["RowPair", "RunError", "Values", "result"]

Values = dict[str, Any]
"""By name."""


class RunError(Exception):
    """Model ``number`` does not run; 0 is the whole one, or says that segments cannot be run here at all."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(one_line(error))
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


class RowPair:
    """A whole model and its segments in a row, as a `memsched.runtimes.special.SpecialPair`.

    Args:
        inputs: (kind, random generator, bound of integers) -> the whole model's inputs, with such values among them.
        whole: Runs the whole model on them; with the number of threads.
        row: Runs the segments; returns all that these hand out.
    """

    def __init__(
        self,
        seed: int,
        inputs: Callable[[Special, np.random.Generator, int], Values],
        whole: Callable[[Values, int], Values],
        row: Callable[[Values], Mapping[str, Any]],
    ) -> None:
        self._seed, self._inputs, self._whole, self._row = seed, inputs, whole, row
        self._expected: Values = {}

    def given(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of the whole model."""
        self._expected = self._whole(self._values(special, bound), 1)
        return list(self._expected.values())

    def written(self, special: Special, bound: int) -> list[Any]:
        """Return those of the segments; a constant, which none hands out, as the whole model has it."""
        found = self._row(self._values(special, bound))
        return [found.get(name, value) for name, value in self._expected.items()]

    def again(self, special: Special, bound: int) -> list[list[Any]]:
        """Return the whole model's outputs with more threads."""
        return [list(self._whole(self._values(special, bound), THREADS[-1]).values())]

    def _values(self, special: Special, bound: int) -> Values:
        return self._inputs(special, rng_of(self._seed, special), bound)
