"""Memory of fresh processes that open a file the way people do. memsched writes no file that needs more."""

from __future__ import annotations

import math
import mmap
import statistics
from collections.abc import Sequence
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.runtimes.child import TIMEOUT
from memsched.runtimes.measure import PROCESSES, Measured, Opener, SteadyRule, measure

__all__ = ["MappedComparison", "ProcessComparison", "ProcessMemory", "compared_processes"]

_NEAR: Final = 2.0
"""A difference between half and twice the tolerance is near it: more processes decide."""

_RESOLUTION: Final = 2 * mmap.PAGESIZE
"""Bytes: a growth is the difference of two counts of whole pages."""

_MOST_PROCESSES: Final = 2 * PROCESSES + 1


class ProcessMemory(FrozenValue, frozen=True):
    """Memory of one file, in bytes above the process before opening; one figure per fresh process.

    Attributes:
        private: Growth of anonymous memory.
        peak: Peak growth of resident memory, including mapped files.
    """

    private: tuple[int, ...]
    peak: tuple[int, ...]

    @classmethod
    def of(cls, figures: Sequence[Measured]) -> ProcessMemory:
        """Return the figures of several processes."""
        return cls(tuple(one.private for one in figures), tuple(one.peak for one in figures))

    @property
    def private_bytes(self) -> int:
        """Return the median."""
        return int(statistics.median(self.private))

    @property
    def peak_bytes(self) -> int:
        """Return the median."""
        return int(statistics.median(self.peak))


class ProcessComparison(FrozenValue, frozen=True):
    """Memory and time of two files.

    Attributes:
        time_ratio: Ratio of the processor times, second to first; None if the memory already decided.
        time_limit: Largest permitted ``time_ratio``.
        equal: Whether the outputs are bit-equal.
    """

    given: ProcessMemory
    written: ProcessMemory
    time_ratio: float | None = None
    time_limit: float = math.inf
    equal: bool = True

    @property
    def needs_more(self) -> bool:
        """Whether the second file takes more memory, private or at its peak, than the noise of either explains."""
        return any(more > tolerance for more, tolerance in self._differences())

    @property
    def takes_longer(self) -> bool:
        """Whether the second file takes more time than is permitted."""
        return self.time_ratio is not None and self.time_ratio > self.time_limit

    @property
    def near(self) -> bool:
        """Whether a difference in memory is so near to the noise that more processes should decide."""
        return any(tolerance / _NEAR < more <= _NEAR * tolerance for more, tolerance in self._differences())

    def _differences(self) -> tuple[tuple[int, int], ...]:
        """Return, for each kind of memory, how much more the second file takes, and what of that may be noise."""
        given, written = self.given, self.written
        return (
            (written.private_bytes - given.private_bytes, _tolerance(given.private, written.private)),
            (written.peak_bytes - given.peak_bytes, _tolerance(given.peak, written.peak)),
        )


class MappedComparison(FrozenValue, frozen=True):
    """Memory and time of a model with mapped weights.

    Attributes:
        unmapped: Memory of its source, which contains the weights.
        seen: The original and the model with mapped weights; ``equal`` compares it with its source.
    """

    unmapped: ProcessMemory
    seen: ProcessComparison


def _tolerance(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the most by which the same file differed from one process to another."""
    return max(_RESOLUTION, max(first) - min(first), max(second) - min(second))


def compared_processes(
    first: Opener, second: Opener, rule: SteadyRule, limit: float, *, large: float = math.inf
) -> ProcessComparison | str:
    """Measure two files in turns, with as many processes as it takes to tell them apart; or return why one failed.

    Args:
        limit: Largest permitted ratio of their processor times, second to first.
        large: Bytes of a process whose noise is so small a share that one process for each file is enough.
    """
    found: list[list[Measured]] = [[], []]
    while True:
        for figures, opener in zip(found, (first, second), strict=True):
            measured = measure(opener, rule, timeout=TIMEOUT)
            if isinstance(measured, str):
                return measured
            figures.append(measured)
        one, other = found
        equal = one[0].digests == other[0].digests
        seen = ProcessComparison(ProcessMemory.of(one), ProcessMemory.of(other), time_limit=limit, equal=equal)
        least = 1 if one[0].peak >= large else PROCESSES
        if len(one) >= _MOST_PROCESSES or (len(one) >= least and not seen.near):
            return seen
