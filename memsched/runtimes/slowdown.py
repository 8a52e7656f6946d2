"""How many times as long as the original a file may take, measured: the one rule of all that is measured by turns."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["most_times"]

_NOISE: Final = 0.05
"""Share of the time that is chance where two runs execute the same: none is permitted by less."""


def most_times(slowdown: float | None) -> float:
    """Return how many times as long a file may take; infinite for any.

    Args:
        slowdown: Time that may be added, in percent; None for any.
    """
    return math.inf if slowdown is None else 1 + max(_NOISE, slowdown / 100)
