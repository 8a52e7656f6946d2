"""The best file that LiteRT's default interpreter takes no more for, and what it took, as rows of the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from memsched.base.units import rounded_ratio
from memsched.commands.optimize.finished import FinishedModel, FinishRequest
from memsched.report.values.interpreter import InterpreterSection, RefusedFileRow
from memsched.report.values.shared import ProcessMemoryRow
from memsched.runtimes.known import DefaultInterpreter
from memsched.runtimes.process_memory import ProcessComparison, ProcessMemory

__all__ = ["comparable", "first_accepted", "memory_row"]


def first_accepted(
    files: Iterator[FinishedModel], asked: FinishRequest, slowdown: float | None, interpreter: DefaultInterpreter
) -> FinishedModel:
    """Return the first file that LiteRT's default interpreter takes no more for than for the original.

    Args:
        files: The candidates, the best one first and the original last; each is made when it is asked for.
        slowdown: Time that a file may take beyond the original, in percent; None for any.
    """
    refused: list[RefusedFileRow] = []
    given: ProcessMemory | None = None
    found = next(files)
    while not found.written.unchanged and comparable(found):
        try:
            seen = interpreter.compare(
                asked.data, found.written.model, seed=asked.seed, slowdown=slowdown, seconds=asked.left()
            )
        except KeyboardInterrupt:
            if not asked.may_end:
                raise
            return dataclasses.replace(found, ended=True, notes=(*found.notes, _NOT_MEASURED.format("interrupted")))
        if isinstance(seen, str):
            return dataclasses.replace(found, notes=(*found.notes, _NOT_MEASURED.format(seen)))
        given = seen.given
        if not seen.needs_more and not seen.takes_longer:
            section = _section(found.needed[0].total, given, tuple(refused), seen)
            return dataclasses.replace(found, interpreter=section)
        refused.append(_refused_row(seen, found.needed[1].total, found.final.extra_work))
        found = next(files)
    if given is None:
        return found
    return dataclasses.replace(found, interpreter=_section(found.needed[0].total, given, tuple(refused), None))


_NOT_MEASURED: Final = "not measured in LiteRT's default interpreter, where this file may need more: {}"


def comparable(found: FinishedModel) -> bool:
    """Whether both files were run, with the same outputs."""
    seen = found.verification
    return seen is not None and seen.outputs_equal is not None and not found.ended and not found.wrong


def _section(
    required: int, given: ProcessMemory, refused: tuple[RefusedFileRow, ...], written: ProcessComparison | None
) -> InterpreterSection:
    """Return the section on the interpreter.

    Args:
        required: Bytes that the original takes as predicted.
        written: What was measured of the file written; None if that is the original.
    """
    return InterpreterSection(
        required_bytes=required,
        given=memory_row(given),
        written=None if written is None else memory_row(written.written),
        time_ratio=None if written is None else rounded_ratio(written.time_ratio),
        refused=refused,
    )


def _refused_row(seen: ProcessComparison, required: int, extra_work: Fraction) -> RefusedFileRow:
    """Return the row of a file that is not written.

    Args:
        required: Bytes that it takes as predicted.
        extra_work: As a part of the original's work.
    """
    return RefusedFileRow(
        required_bytes=required,
        extra_macs_percent=round(float(100 * extra_work), 2),
        memory=memory_row(seen.written),
        time_ratio=rounded_ratio(seen.time_ratio),
    )


def memory_row(memory: ProcessMemory) -> ProcessMemoryRow:
    """Return what a file was measured to take, as reports have it."""
    return ProcessMemoryRow(
        private_bytes=memory.private_bytes, peak_bytes=memory.peak_bytes, processes=len(memory.private)
    )
