"""Lines on LiteRT's default interpreter: the verdict of a file for LiteRT as people open it."""

from __future__ import annotations

from memsched.report.values.interpreter import InterpreterMemoryRow, RefusedFileRow
from memsched.report.values.optimize import OptimizeReport
from memsched.units import format_size

__all__ = ["WITHOUT_DELEGATES", "interpreter_lines", "kept_for_interpreter"]

Line = tuple[str, str | None]

WITHOUT_DELEGATES = "LiteRT's arena without delegates"

_DEFAULT = "LiteRT's default interpreter, measured"


def interpreter_lines(report: OptimizeReport) -> list[Line]:
    """Return what the original and the file written take in LiteRT's default interpreter; no line if not measured."""
    section = report.interpreter
    if section is None:
        return []
    given, written = section.given, section.written
    if written is None:
        return [(f"{_DEFAULT}: the original takes {_memory(given)}", None), *map(_refused, section.refused)]
    text = f"{_DEFAULT}: {_change('private', given.private_bytes, written.private_bytes)}, "
    text += _change("peak", given.peak_bytes, written.peak_bytes)
    if section.time_ratio is not None:
        text += f", {section.time_ratio:.2f} x the processor time"
    saved = given.private_bytes - written.private_bytes
    style = "green" if saved > _LEAST_SHARE * given.private_bytes else None
    return [(text, style), *map(_refused, section.refused)]


_LEAST_SHARE = 0.01
"""The least gain in private memory that makes a line green."""


def kept_for_interpreter(report: OptimizeReport) -> str | None:
    """Return why the original is kept if its default interpreter takes more for what was found; None elsewhere."""
    section = report.interpreter
    if section is None or section.written is not None or not section.refused:
        return None
    return "the original is kept: LiteRT's default interpreter takes no less for any other file that was found"


def _refused(row: RefusedFileRow) -> Line:
    if row.time_ratio is None:
        why = f"takes {_memory(row.memory)}"
    else:
        why = f"takes {row.time_ratio:.2f} x the processor time"
    work = f" with {row.extra_macs_percent:g} % more work" if row.extra_macs_percent else ""
    text = (
        f"not written: a file{work} that {why} there; {WITHOUT_DELEGATES} would take {row.arena_bytes:,} B for it: "
        "name such interpreters with --target litert-builtin"
    )
    return text, "yellow"


def _memory(row: InterpreterMemoryRow) -> str:
    return f"{format_size(row.private_bytes)} private, {format_size(row.peak_bytes)} at the peak"


def _change(name: str, before: int, after: int) -> str:
    return f"{name} {format_size(before)} -> {format_size(after)}"
