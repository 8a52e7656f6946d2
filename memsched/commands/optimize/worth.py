"""Whether a file saves enough to be written: another file to trust is not worth a fraction of a percent."""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_GAIN", "MOST_LEFT", "slight"]

LEAST_GAIN: Final = 0.01
"""Share of what is required: a smaller gain is not worth another file, or another run."""

MOST_LEFT: Final = 0.9
"""Largest share of the memory that an alternative may leave: another way of opening must be worth its trouble."""


def slight(given: int, needed: int, budget: int | None) -> int | None:
    """Return what a file saves that is not worth writing it, bytes; None where it is, or where it saves nothing.

    Args:
        given: What the file as given requires.
        needed: What that file does.
        budget: Bytes, for which less than that may be needed; None where there is none.
    """
    saved = given - needed
    meets = budget is not None and needed <= budget < given
    return saved if 0 < saved < LEAST_GAIN * given and not meets else None
