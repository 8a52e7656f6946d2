"""Lines on the sessions in which a written model was measured, and on the sizes for which it holds."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.sessions import SessionRow
from memsched.report.values.shared import MeasuredArenaSection, VerificationSection
from memsched.runtimes.onnxruntime.session_points import MeasuredSession, SessionPoint
from memsched.units import format_size

__all__ = ["arena_lines", "arena_text", "default_session_line", "executed_lines", "measured_text", "memory_named"]
__all__ += ["measured_row", "size_lines"]

Line = tuple[str, str | None]

_DEFAULT_SESSION = "a session without options"
"""What reports without words for it speak of."""


def memory_named(report: OptimizeReport) -> str:
    """Return in words what a budget is compared with."""
    if report.result.session_bytes is None:
        return "the arena"
    guarantee = report.order_guarantee
    if guarantee is None:
        return "a session with the options of --order-guarantee session"
    with_options = guarantee.kind == "session" and guarantee.session_options
    return "a session with the options below" if with_options else "a session without options"


def measured_text(report: OptimizeReport, verification: VerificationSection) -> str:
    """Return both measured peaks and in which session; empty where none was measured, or nothing was changed."""
    before, after = verification.measured_peak_before_bytes, verification.measured_peak_after_bytes
    with_options = len(verification.measured_with) > 1
    if before is None or after is None:
        return ""
    if verification.arena_after is not None:
        return f"; measured arena {before:,} -> {after:,} B{_as_predicted(verification)}"
    guarantee = report.order_guarantee
    stated = guarantee is not None and guarantee.session_options
    if _unchanged(report) and verification.measured_with and not stated:
        return f"; measured peak in a session without options {before:,} B"
    if report.executed is not None:
        return f"; measured peak {before:,} B (the file as given, level {report.executed.level}) -> {after:,} B"
    where = ""
    if with_options:
        where = " with the options below" if stated else " with the options of --order-guarantee session"
    return f"; measured peak{where} {before:,} -> {after:,} B"


def _as_predicted(verification: VerificationSection) -> str:
    known = [one.as_predicted for one in (verification.arena_before, verification.arena_after) if one is not None]
    return " (64 bit), to the byte as predicted" if all(known) else " (64 bit)"


def arena_lines(report: OptimizeReport) -> list[Line]:
    """Return a warning per arena that TensorFlow Lite Micro laid otherwise than predicted."""
    verification = report.verification
    if verification is None:
        return []
    pairs = (("as given", verification.arena_before), ("written", verification.arena_after))
    told = "warning: TensorFlow Lite Micro lays the model"
    return [
        (f"{told} {name} otherwise than predicted: {arena_text(arena)}; please report it", "yellow")
        for name, arena in pairs
        if arena is not None and arena.as_predicted is False
    ]


def arena_text(arena: MeasuredArenaSection) -> str:
    """Return what was measured of an arena and what was predicted."""
    return (
        f"measured {_parts(arena.measured_head_bytes, arena.measured_tail_bytes)}, "
        f"predicted {_parts(arena.predicted_head_bytes, arena.predicted_tail_bytes)}"
    )


def _parts(head: int | None, tail: int | None) -> str:
    return "nothing" if head is None or tail is None else f"head {head:,} + tail {tail:,} = {head + tail:,} B"


def default_session_line(report: OptimizeReport) -> tuple[Line | None, bool]:
    """Return what a session without options needs before and after, and whether that is a warning."""
    verification = report.verification
    if verification is None or verification.default_peak_before_bytes is None:
        return None, False
    before, after = verification.default_peak_before_bytes, verification.default_peak_after_bytes
    what = verification.default_session or _DEFAULT_SESSION
    # LiteRT stands in for TensorFlow Lite Micro in verifying outputs; its arena is of no interest there.
    if _unchanged(report) or report.tflm is not None:
        return None, False
    if after is None:
        return (f"{what} cannot run the model written", "yellow"), True
    figures = f"{before:,} -> {after:,} B"
    with_options = len(verification.measured_with) > 1
    promised = verification.measured_peak_after_bytes
    if after > before:
        rest = "open this file with the options below" if with_options else "keep the file as given for such sessions"
        if with_options and promised is not None and before <= promised:
            rest = "keep the file as given, which needs no more so than this one with the options below"
        return (f"{what} needs more than before: {figures}; {rest}", "yellow"), True
    if with_options and promised is not None and before <= promised:
        rest = "no more than this file with the options below: its optimisations save as much"
        return (f"{what} needs {figures}: for the file as given {rest}", "yellow"), True
    if after == before:
        return (f"{what} needs {figures}: nothing is saved there", "yellow"), False
    return (f"{what} needs {figures}", None), False


def executed_lines(report: OptimizeReport) -> list[Line]:
    """Return what the file holds where ONNX Runtime's own graph was written, and what its session took."""
    executed = report.executed
    if executed is None:
        return []
    lines: list[Line] = []
    block = executed.block_channels
    if block:
        text = f"ONNX Runtime's own graph at level {executed.level}, for processors of blocks of {block} channels alone"
        lines.append((f"{text}, as this one is: {executed.processor}", "yellow"))
    else:
        lines.append((f"ONNX Runtime's own graph at level {executed.level}, for any processor", None))
    rows = {row.file: row for row in report.sessions}
    given, written = (rows.get(file) for file in ("given", "written"))
    if given and written and given.process_bytes and written.process_bytes and given.cpu_ms and written.cpu_ms:
        process = f"{format_size(given.process_bytes)} -> {format_size(written.process_bytes)}"
        lines.append((f"the process: {process}, at {written.cpu_ms / given.cpu_ms:.2f} x the processor time", None))
    return lines


def size_lines(report: OptimizeReport) -> list[Line]:
    """Return for which sizes alone the model written holds, and what other sizes gave where any are open."""
    lines: list[Line] = []
    held = () if report.output is None else report.output.fixed_dimensions
    if held:
        sizes = ", ".join(f"{one.dimension} = {one.size}" for one in held)
        lines.append(
            (f"fixed in the file, as pieces hold for one size alone: {sizes}; ONNX Runtime refuses others", None)
        )
    tried = () if report.verification is None else report.verification.other_sizes
    for outcome, text in _OUTCOMES.items():
        found = [f"{one.dimension} = {one.size}" for one in tried if one.outcome == outcome]
        if found:
            lines.append((f"tried at other sizes: {', '.join(found)}: {text}", "red" if outcome == "wrong" else None))
    return lines


_OUTCOMES = {
    "refused": "refused, as they must be",
    "equal": "the same outputs as the model as given",
    "wrong": "WRONG",
}


def _unchanged(report: OptimizeReport) -> bool:
    return report.output is not None and report.output.unchanged


def measured_row(
    file: Literal["given", "written"],
    point: SessionPoint,
    found: MeasuredSession | None = None,
    predicted: int | None = None,
) -> SessionRow:
    """Return the row of a session: how it was opened, and what it took where that was measured."""
    return SessionRow(
        file=file,
        level=point.level,
        execution_order=point.order,
        mem_reuse=point.reuse,
        mem_pattern=point.pattern,
        arena=point.arena,
        shrinkage=point.shrinkage,
        prepacking=point.prepacking,
        threads=point.threads,
        predicted_bytes=predicted,
        measured_bytes=None if found is None else found.requested,
        process_bytes=None if found is None else max(0, found.process),
        first_run_bytes=None if found is None else max(0, found.first_run),
        cpu_ms=None if found is None else round(1000 * found.cpu_seconds, 3),
    )
