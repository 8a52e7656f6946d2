"""Lines on LiteRT's default interpreter: the verdict of a file for LiteRT as people open it."""

from __future__ import annotations

from memsched.base.shown import WORTH_TELLING
from memsched.base.units import counted, format_size
from memsched.report.values.interpreter import InterpreterSection, RefusedFileRow
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.shared import ProcessMemoryRow

__all__ = ["interpreter_card", "interpreter_lines", "kept_for_interpreter", "refused_lines"]

Line = tuple[str, str | None]

_DEFAULT = "LiteRT's default interpreter, measured"


def interpreter_lines(report: OptimizeReport) -> list[Line]:
    """Return what the original and the file written take in LiteRT's default interpreter; no line if not measured."""
    section = report.sections.interpreter
    if section is None:
        return []
    given, written = section.given, section.written
    if written is None:
        return [(f"{_DEFAULT}: the original takes {_memory(given)}", None), *refused_lines(section)]
    text = f"{_DEFAULT}: {_change('private', given.private_bytes, written.private_bytes)}, "
    text += _change("peak", given.peak_bytes, written.peak_bytes)
    if section.time_ratio is not None:
        text += f", {section.time_ratio:.2f} x the processor time"
    saved = given.private_bytes - written.private_bytes
    style = "green" if saved > WORTH_TELLING * given.private_bytes else None
    return [(text, style), *refused_lines(section)]


def kept_for_interpreter(report: OptimizeReport) -> str | None:
    """Return why the original is kept if its default interpreter takes more for what was found; None elsewhere."""
    section = report.sections.interpreter
    if section is None or section.written is not None or not section.refused:
        return None
    return "the original is kept: LiteRT's default interpreter takes no less for any other file that was found"


def interpreter_card(report: OptimizeReport) -> tuple[str, str, str] | None:
    """Return what the page says of LiteRT's default interpreter: a label, a figure, and more; None if not measured."""
    section = report.sections.interpreter
    if section is None:
        return None
    given, written = section.given, section.written
    shown = given if written is None else written
    more = f"{format_size(shown.peak_bytes)} at the peak"
    if written is None:
        more += ", the original; it needs more for every other file that was found"
    else:
        more += f"; {_memory(given)} for the original"
        if section.time_ratio is not None:
            more += f"; {section.time_ratio:.2f} x its processor time"
        if section.refused:
            more += f"; {counted(len(section.refused), 'file')} that should save more cost more there"
    return "Private memory in LiteRT's default interpreter", format_size(shown.private_bytes), more


def refused_lines(section: InterpreterSection) -> list[Line]:
    """Return why the best file is not written, and how many others are not."""
    lines = [_refused(row) for row in section.refused[:1]]
    others = len(section.refused) - 1
    if others > 0:
        lines.append((f"not written for the same reason: {counted(others, 'file')} that would save less", "yellow"))
    return lines


def _refused(row: RefusedFileRow) -> Line:
    time = "" if row.time_ratio is None else f", and {row.time_ratio:.2f} x the processor time"
    work = f" with {row.extra_macs_percent:g} % more work" if row.extra_macs_percent else ""
    return f"not written: a file{work} that takes {_memory(row.memory)}{time}", "yellow"


def _memory(row: ProcessMemoryRow) -> str:
    return f"{format_size(row.private_bytes)} private, {format_size(row.peak_bytes)} at the peak"


def _change(name: str, before: int, after: int) -> str:
    return f"{name} {format_size(before)} -> {format_size(after)}"
