"""What LiteRT's default interpreter took, as rows of the report."""

from __future__ import annotations

from fractions import Fraction

from memsched.report.values.interpreter import InterpreterMemoryRow, InterpreterSection, RefusedFileRow
from memsched.runtimes.litert.default_interpreter import InterpreterComparison, InterpreterMemory

__all__ = ["interpreter_section", "refused_row"]


def interpreter_section(
    arena: int, given: InterpreterMemory, refused: tuple[RefusedFileRow, ...], written: InterpreterComparison | None
) -> InterpreterSection:
    """Return the section on the interpreter.

    Args:
        arena: Bytes that the original takes without delegates.
        written: What was measured of the file written; None if that is the original.
    """
    return InterpreterSection(
        arena_bytes=arena,
        given=_memory_row(given),
        written=None if written is None else _memory_row(written.written),
        time_ratio=None if written is None else _rounded(written.time_ratio),
        refused=refused,
    )


def refused_row(seen: InterpreterComparison, arena: int, extra_work: Fraction) -> RefusedFileRow:
    """Return the row of a file that is not written.

    Args:
        arena: Bytes that it takes without delegates.
        extra_work: As a part of the original's work.
    """
    return RefusedFileRow(
        arena_bytes=arena,
        extra_macs_percent=round(float(100 * extra_work), 2),
        memory=_memory_row(seen.written),
        time_ratio=_rounded(seen.time_ratio),
    )


def _memory_row(memory: InterpreterMemory) -> InterpreterMemoryRow:
    return InterpreterMemoryRow(
        private_bytes=memory.private_bytes, peak_bytes=memory.peak_bytes, processes=len(memory.private)
    )


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)
