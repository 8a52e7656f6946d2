"""What a process takes when its memory has stopped growing: the rule of every measurement. The child process's side.

The first runs are not the steady state. An arena keeps what the first run of a size took, asks for as much again as one
block in a later run, and grows once more for a size that it does not know. Figures are those of Linux (``/proc/self``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from memsched.frozen import FrozenValue
from memsched.units import KIB

__all__ = ["LEAST_RUNS", "LEAST_RUNS_OF_BODIES", "SteadyRuns", "forget_highest", "process_bytes", "run_until_steady"]

LEAST_RUNS: Final = 5
"""Runs at least: the last growth of files without bodies was seen in the third."""

LEAST_RUNS_OF_BODIES: Final = 20
"""The same of files with bodies (If, Loop, Scan), each of which has a memory pattern of its own, or none."""

_MOST_RUNS: Final = 40
_FURTHER: Final = 2
"""Passes over all sizes that must add nothing."""

_LEAST_PASSES: Final = 3

_NOTHING: Final = 0.005
"""Share of what a process takes that counts as no growth: steady ones were seen to grow by 0.3 % in 20 runs."""

_COUNTED_LATE: Final = 1 << 17
"""Bytes that the system may count in a later run only: it counts pages by the batch."""


class SteadyRuns(FrozenValue, frozen=True):
    """Runs until the memory of the process stopped growing.

    Attributes:
        settled: Whether it did; otherwise time or runs ended first.
        peak: The highest memory of the process since it was forgotten last, bytes.
        private: What no file backs of it after the last run, bytes.
        clock: Seconds of each run.
        processor: Processor seconds of each run, all threads together.
    """

    settled: bool
    peak: int
    private: int
    clock: tuple[float, ...]
    processor: tuple[float, ...]

    @property
    def runs(self) -> int:
        """Return how many runs there were."""
        return len(self.clock)


def run_until_steady(
    run: Callable[[int], object],
    before: int,
    *,
    least: int = LEAST_RUNS,
    sizes: int = 1,
    seconds: float | None = None,
) -> SteadyRuns:
    """Call ``run`` until two further passes over all sizes add no memory.

    Args:
        run: Runs the model once; its argument is the number of the size, which take turns.
        before: Memory of the process without the model, bytes.
        least: Runs at least.
        sizes: How many sizes take turns.
        seconds: After which no further pass begins, if each size ran twice; None for no limit.
    """
    clock: list[float] = []
    processor: list[float] = []
    peaks: list[int] = []
    settled, began = False, time.monotonic()
    while not settled and len(clock) < max(_MOST_RUNS, _LEAST_PASSES * sizes):
        if seconds is not None and len(peaks) >= _FURTHER and time.monotonic() - began > seconds:
            break
        for number in range(sizes):
            started, worked = time.perf_counter(), time.process_time()
            run(number)
            clock.append(time.perf_counter() - started)
            processor.append(time.process_time() - worked)
        peaks.append(process_bytes("VmHWM:"))
        settled = len(clock) >= least and len(peaks) >= _LEAST_PASSES and _is_steady(peaks, before)
    return SteadyRuns(settled, peaks[-1], process_bytes("RssAnon:"), tuple(clock), tuple(processor))


def _is_steady(peaks: list[int], before: int) -> bool:
    return peaks[-1] - peaks[-1 - _FURTHER] <= max(_NOTHING * (peaks[-1] - before), _COUNTED_LATE)


def process_bytes(name: str) -> int:
    """Return what the system counts of this process under a name of ``/proc/self/status``, such as "VmHWM:"."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * KIB
    raise OSError(f"/proc/self/status has no {name}")


def forget_highest() -> None:
    """Begin a new highest value of the process's memory."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
