"""When a search that can be left at any time is asked for what it has found."""

from __future__ import annotations

from typing import Final

__all__ = ["next_stop"]

_STEP: Final = 0.01
"""Work of a search, as `Limits.effort` counts it, before it is asked for the first time what it has found."""

_PER_STEP: Final = 10
"""Later it is asked whenever its work has grown by this fraction: choosing among what it knows takes work as well."""


def next_stop(work: float) -> float:
    """Return the work at which a search that did so much is asked for what it has found."""
    return work + max(_STEP, work / _PER_STEP)
