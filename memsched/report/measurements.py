"""What runs showed of the original and of the model written: one list of all that was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from memsched.report.session_code import options_text
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.optimize import Sections
from memsched.report.values.sessions import MappedSection, SessionRow
from memsched.report.values.shared import MeasuredArenaSection, ProcessMemoryRow, VerificationSection
from memsched.report.values.verdict import MeasurementRow, Unit

__all__ = ["mapped_rows", "measurement_rows"]

_DEFAULT: Final = "default"

_File = Literal["original", "written", "refused"]
_Peaks = tuple[tuple[_File, int | None], ...]


def measurement_rows(sections: Sections, unit: Unit, files: tuple[str, str | None]) -> tuple[MeasurementRow, ...]:
    """Return everything that was measured.

    Args:
        unit: Of the verdict.
        files: The digests of the original and of the model written, if there is one.
    """
    found: list[MeasurementRow] = []
    if sections.verification is not None:
        found += _of_verification(sections.verification, unit)
    found += [_of_session(row) for row in sections.sessions]
    if sections.interpreter is not None:
        found += _of_interpreter(sections.interpreter)
    if sections.open_loops is not None:
        for size in sections.open_loops.measured:
            session = ", ".join((_DEFAULT, *(f"{name} = {length}" for name, length in size.sizes.items())))
            given, made = size.given_process_bytes, size.process_bytes
            found.append(MeasurementRow(file="original", session=session, peak_bytes=given))
            found += [] if made is None else [MeasurementRow(file="written", session=session, peak_bytes=made)]
    digests = {"original": files[0], "written": files[1]}
    return tuple(msgspec.structs.replace(row, digest=digests.get(row.file)) for row in found)


def _of_verification(shown: VerificationSection, unit: Unit) -> Iterator[MeasurementRow]:
    arenas: tuple[tuple[_File, MeasuredArenaSection | None], ...] = (
        ("original", shown.arena_before),
        ("written", shown.arena_after),
    )
    if any(arena is not None for _, arena in arenas):
        yield from (_of_arena(file, arena) for file, arena in arenas if arena is not None)
        return
    peaks: _Peaks = (("original", shown.measured_peak_before_bytes), ("written", shown.measured_peak_after_bytes))
    session = "with the options of the guarantee" if len(shown.measured_with) > 1 else _DEFAULT
    for file, peak in peaks:
        if peak is not None and unit == "litert_arena":
            yield MeasurementRow(file=file, session="interpreter without delegates", arena_bytes=peak)
        elif peak is not None:
            yield MeasurementRow(file=file, session=session, requested_bytes=peak)
    if unit == "requested" and session != _DEFAULT:
        own: _Peaks = (("original", shown.default_peak_before_bytes), ("written", shown.default_peak_after_bytes))
        for file, peak in own:
            if peak is not None:
                yield MeasurementRow(file=file, session=_DEFAULT, requested_bytes=peak)


def _of_arena(file: _File, arena: MeasuredArenaSection) -> MeasurementRow:
    return MeasurementRow(file=file, session="64-bit host", arena_bytes=arena.measured_total_bytes)


def _of_session(row: SessionRow) -> MeasurementRow:
    options = options_text(row)
    return MeasurementRow(
        file="original" if row.file == "given" else "written",
        session=_DEFAULT if options == "none" else options,
        runs=row.runs,
        peak_bytes=row.process_bytes,
        requested_bytes=row.measured_bytes,
        cpu_seconds=None if row.cpu_ms is None else row.cpu_ms / 1000,
    )


def _of_interpreter(section: InterpreterSection) -> Iterator[MeasurementRow]:
    session = "default interpreter"
    yield _of_process("original", session, section.given)
    if section.written is not None:
        yield _of_process("written", session, section.written)
    yield from (_of_process("refused", session, one.memory) for one in section.refused)


def mapped_rows(section: MappedSection) -> tuple[MeasurementRow, ...]:
    """Return the measurements of mapped weights."""
    inside = _of_process("refused", "weights inside", section.unmapped)
    return (
        _of_process("original", _DEFAULT, section.given),
        inside,
        _of_process("written", "weights mapped", section.written),
    )


def _of_process(file: _File, session: str, memory: ProcessMemoryRow) -> MeasurementRow:
    return MeasurementRow(
        file=file,
        session=session,
        runs=memory.processes,
        private_bytes=memory.private_bytes,
        peak_bytes=memory.peak_bytes,
    )
