"""At what work a search is looked at: amounts that no limit changes, so that with more of it nothing found is lost.

A search compares peaks of ways as they are written. What a model of one requires in its best order is often less, so
that a way whose peak is lower may lead to more, and displaces a better one. At each look models are made of what was
found so far, with work of their own that depends on the look alone, and the best is kept.
"""

from __future__ import annotations

import math

from memsched.commands.optimize.place import Request

__all__ = ["Looks"]

_FIRST = 2.0
"""Work of the search, as `Limits.effort` counts it, at the first look; a search that ends before is looked at then."""

_PER_DOUBLING = 2
"""Looks until the work has doubled; of these, all but the last only where the peak fell."""

_FALL = 0.97
"""Share of the peak at the last look to which it must have fallen then: each model takes a moment."""

_SEARCH_SHARE = 0.71
"""Share of a limit of work for the search: with all that looks may take, nearly all of the limit."""

_ROUNDING = 1e-9
"""By how much work, counted in whole steps, may seem less than it is."""

_LOOK_SHARE = 0.11
"""Work for the models of a look, as a part of the work of the search until then."""


class Looks:
    """The amounts of work of one search at which it is looked at.

    Attributes:
        at: Work at which to look next.
        fixed: Whether there are any: without a limit a search is looked at once it has ended.
    """

    def __init__(self) -> None:
        self._number, self._last, self.fixed = 0, math.inf, False
        self._looked_at = math.inf
        self.at = _FIRST

    def within(self, request: Request, done: float) -> None:
        """Set the limit: that of a request, with all models, when the search has done so much work."""
        effort = request.effort()
        self.fixed = effort is not None or math.isfinite(request.deadline())
        self._last = math.inf if effort is None else done + _SEARCH_SHARE * effort
        # With less than the first look takes, it comes at the end.
        self.at = self._amount_of(self._number) if self._number else min(_FIRST, self._last)

    @staticmethod
    def _amount_of(number: int) -> float:
        return float(_FIRST * 2 ** (number / _PER_DOUBLING))

    def worth(self, peak: float, *, last: bool) -> bool:
        """Return whether to make models now that a look is due.

        Args:
            peak: Of the best point, bytes; infinite where there is none.
            last: The search has ended by itself.
        """
        doubled = self._number % _PER_DOUBLING == 0
        worth = peak < self._looked_at * (1.0 if doubled or last else _FALL)
        if worth:
            self._looked_at = peak
        return worth

    def next(self) -> bool:
        """Go on to the next look, if there is one within the limit; return whether there is."""
        following = self._amount_of(self._number + 1)
        if following > self._last:
            return False
        self._number, self.at = self._number + 1, following
        return True

    def due(self, done: float) -> bool:
        """Return whether a search that did so much work has come to the look."""
        return done > self.at - _ROUNDING

    def skip(self) -> None:
        """Go on to the last look, if there is one."""
        while math.isfinite(self._last) and self.next():
            pass

    def again(self) -> None:
        """Look at whatever there is next: models of the last look could not be made."""
        self._looked_at = math.inf

    @property
    def work(self) -> float:
        """The work for the models of the look that is due."""
        return _LOOK_SHARE * self._amount_of(self._number)
