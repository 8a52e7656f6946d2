"""What two files take in LiteRT's default interpreter, ``Interpreter(model_path=...)``: most people open files so.

Its delegate packs the weights of every operator that it takes, and keeps tables beside them: what a file takes of the
process says more than LiteRT's own arena. Each figure is from fresh processes; those of both files take turns.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from memsched.runtimes.child import TIMEOUT, temporary_folder
from memsched.runtimes.litert.interpreter import InterpreterOpener
from memsched.runtimes.measure import SteadyRule, measure, race_two
from memsched.runtimes.process_memory import ProcessComparison, ProcessMemory, compared_processes
from memsched.runtimes.race import RaceRule, most_times

__all__ = ["DefaultInterpreter"]

_STEADY: Final = SteadyRule(seconds=None)

_TURNS: Final = RaceRule(rounds=9, most=25, least=3, turn=0.05)
"""A shorter turn is lost in the clock's resolution and the caches' state."""

_MOST_SECONDS: Final = 20.0
"""Taking turns."""


class DefaultInterpreter:
    """Measures files in LiteRT's default interpreter."""

    def compare(
        self, given: bytes, written: bytes, *, seed: int, slowdown: float | None, seconds: float = math.inf
    ) -> ProcessComparison | str:
        """Measure two files; return the reason if one of them could not be measured.

        Args:
            given: The original file.
            seed: Of the inputs.
            slowdown: Time that the second file may take beyond the first, in percent; None for any.
            seconds: That are left: the files take turns in what memory leaves of them, a few times at least.
        """
        limit, until = most_times(slowdown), time.monotonic() + seconds
        with temporary_folder() as folder:
            paths = [folder / "given.tflite", folder / "written.tflite"]
            for path, data in zip(paths, (given, written), strict=True):
                path.write_bytes(data)
            first, second = (InterpreterOpener(str(path), seed) for path in paths)
            seen = compared_processes(first, second, _STEADY, limit)
            if isinstance(seen, str) or seen.needs_more:
                return seen
            most = min(_MOST_SECONDS, max(0.0, until - time.monotonic()))
            turns = replace(_TURNS, limit=limit if math.isfinite(limit) else 1.0, seconds=most)
            timed = race_two(first, second, turns, timeout=TIMEOUT)
            return timed if isinstance(timed, str) else replace(seen, time_ratio=timed.processor)

    def measure(self, path: Path, *, seed: int) -> ProcessMemory | str:
        """Return the memory that a file takes in one fresh process, or the reason if it could not be measured."""
        measured = measure(InterpreterOpener(str(path), seed), _STEADY, timeout=TIMEOUT)
        return measured if isinstance(measured, str) else ProcessMemory.of([measured])
