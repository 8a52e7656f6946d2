"""How much longer a file for a range of sizes may take, and the files that take more."""

from __future__ import annotations

import math
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.race import most_times

__all__ = ["SlowFile", "most_at_sizes", "slower_alternative"]

_MOST_TIME: Final = 1.1
"""What a file may take at a small size, as a multiple of what the one given takes."""

_MARGIN: Final = 5
"""Percent of time by which another measurement may be off."""


def most_at_sizes(slowdown: float | None) -> tuple[float, float]:
    """Return how many times as long a file may take at the large and at the small size.

    Where much is permitted, short runs may take longer: loops compute again there as well, and gain nothing.

    Args:
        slowdown: Time that may be added, in percent; None for any.
    """
    most = most_times(slowdown)
    return most, max(2 * most - _MOST_TIME, _MOST_TIME)


class SlowFile(FrozenValue, frozen=True):
    """A file that needs less memory, and takes more time than is permitted.

    Attributes:
        peak: Bytes of the process at the large size.
        ratio: Time to that of the original.
        where: At which size, in words; empty for the large one.
    """

    peak: int
    ratio: float
    where: str

    def __str__(self) -> str:
        """Say so in words."""
        took = f"{self.peak / 1e6:,.0f} MB at {self.ratio:.2f} x the time{self.where}"
        return f"{took}, which is more than --max-slowdown permits"

    @property
    def slowdown(self) -> int:
        """Return percent of time that permit it, if another measurement is a little off."""
        most = (self.ratio + _MOST_TIME) / 2 if self.where else self.ratio
        return math.ceil(100 * (most - 1)) + _MARGIN


def slower_alternative(slow: SlowFile, name: str, command: str, original: int) -> AlternativeRow:
    """Return the row of a file that is not written as it takes more time.

    Args:
        name: What was done.
        command: Permits the time.
        original: Bytes of the process of the original.
    """
    return AlternativeRow(
        command=command,
        what=f"loops {name}",
        bytes=slow.peak,
        saving_bytes=0,
        extra_macs_percent=0.0,
        time_ratio=slow.ratio,
        changes=(),
        process_bytes=slow.peak,
        process_saving_bytes=original - slow.peak,
    )
