"""The work that the searches of one command have done, counted and not timed: what `--effort` limits."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WorkMeter"]


@dataclass(slots=True)
class WorkMeter:
    """One for each command: all parts of its run count here.

    Attributes:
        done: Work, about as much as an idle machine does in so many seconds; see `Limits.effort`.
    """

    done: float = 0.0
