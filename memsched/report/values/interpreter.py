"""The section on LiteRT's default interpreter: what files take of a process there."""

from __future__ import annotations

from memsched.report.values.base import Amount, Count, Section
from memsched.report.values.shared import ProcessMemoryRow

__all__ = ["InterpreterSection", "RefusedFileRow"]


class RefusedFileRow(Section, frozen=True, kw_only=True):
    """A file that was found and is not written.

    Attributes:
        memory: What it takes of a process.
        required_bytes: What it takes as predicted.
        extra_macs_percent: Work that the original does not have.
        time_ratio: Processor time of a run to that of the original; null if the memory decided.
    """

    required_bytes: Count
    extra_macs_percent: Amount
    memory: ProcessMemoryRow
    time_ratio: Amount | None


class InterpreterSection(Section, frozen=True, kw_only=True):
    """LiteRT's default interpreter, as ``Interpreter(model_path=...)`` opens a file: measured in fresh processes.

    Attributes:
        required_bytes: What the original takes as predicted.
        given: The original.
        written: The file written; null if that is the original.
        time_ratio: Processor time of a run of the file written to that of the original, the median of turns; null if
            that is the original.
        refused: Files that need more memory there, or more time than --max-slowdown permits; the best one first.
    """

    required_bytes: Count
    given: ProcessMemoryRow
    written: ProcessMemoryRow | None
    time_ratio: Amount | None
    refused: tuple[RefusedFileRow, ...]
