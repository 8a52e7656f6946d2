"""Time limits for files with open dimensions, and the files that exceed them."""

from __future__ import annotations

from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.command_lines import slowdown_for
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.race import most_times

__all__ = ["SlowFile", "most_at_sizes", "slower_alternative"]

_MOST_TIME: Final = 1.1
"""Permitted time at a small size, relative to the original."""


def most_at_sizes(slowdown: float | None) -> tuple[float, float]:
    """Return the permitted time at the large and at the small size, relative to the original.

    Short runs may take longer if the limit is high: loops repeat work there without a gain.

    Args:
        slowdown: Permitted additional time in percent. None for no limit.
    """
    most = most_times(slowdown)
    return most, max(2 * most - _MOST_TIME, _MOST_TIME)


class SlowFile(FrozenValue, frozen=True):
    """A file that saves memory but exceeds the permitted time.

    Attributes:
        peak: Process memory in bytes at the large size.
        ratio: Time relative to the original.
        where: Description of the size. Empty for the large size.
    """

    peak: int
    ratio: float
    where: str

    def __str__(self) -> str:
        """Return a description for notes."""
        took = f"{self.peak / 1e6:,.0f} MB at {self.ratio:.2f} x the time{self.where}"
        return f"{took}, which is more than --max-slowdown permits"

    @property
    def slowdown(self) -> int:
        """Return the `--max-slowdown` that permits this file, with a margin for noise."""
        most = (self.ratio + _MOST_TIME) / 2 if self.where else self.ratio
        return slowdown_for(most)


def slower_alternative(slow: SlowFile, name: str, command: str, original: int) -> AlternativeRow:
    """Return an alternative for a file that was rejected because of its time.

    Args:
        name: Name of the rewrite.
        command: Command line that permits the time.
        original: Process memory of the original in bytes.
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
