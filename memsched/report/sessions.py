"""Lines on the sessions in which a written model was measured, and on the sizes for which it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from memsched.base.units import format_size
from memsched.formats.known import format_named
from memsched.report.requirement import needed_memory
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.sessions import SessionRow
from memsched.report.values.shared import MeasuredArenaSection, VerificationSection

__all__ = [
    "apart_lines",
    "arena_lines",
    "arena_text",
    "as_predicted",
    "default_session_line",
    "executed_lines",
    "held_back_lines",
    "measured_text",
    "memory_named",
    "process_lines",
    "size_lines",
    "smaller_process",
    "tried_lines",
]

Line = tuple[str, str | None]

_DEFAULT_SESSION = "a session without options"
"""What reports without words for it speak of."""


def memory_named(report: OptimizeReport) -> str:
    """Return in words what a budget is compared with."""
    noun = needed_memory(report).noun
    if report.verdict.unit == "interpreter":
        return "LiteRT's default interpreter"
    if noun == "process":
        return "the process, the runtime's library included,"
    if not report.in_session:
        return f"the {noun}"
    guarantee = report.guarantee
    if guarantee is None:
        return "a session with the options of --order-guarantee session"
    with_options = guarantee.kind in {"session", "none"} and guarantee.session_options
    return "a session with its options" if with_options else "a session without options"


def measured_text(report: OptimizeReport, verification: VerificationSection) -> str:
    """Return both measured peaks and in which session; empty where none was measured, or nothing was changed."""
    before, after = verification.measured_peak_before_bytes, verification.measured_peak_after_bytes
    with_options = len(verification.measured_with) > 1
    if before is None or after is None:
        return ""
    if verification.arena_after is not None:
        return f"; measured arena {before:,} -> {after:,} B{as_predicted(verification)}"
    guarantee = report.guarantee
    stated = guarantee is not None and guarantee.session_options
    if _unchanged(report) and verification.measured_with and not stated:
        return f"; measured peak in a session without options {before:,} B"
    if report.verdict.unit == "litert_arena":
        return f"; measured arena without delegates {before:,} -> {after:,} B"
    if report.sections.executed is not None:
        return (
            f"; measured peak {before:,} B (the file as given, level {report.sections.executed.level}) -> {after:,} B"
        )
    if guarantee is not None and guarantee.kind == "none" and stated:
        return f"; measured peak {before:,} B (the file as given, without options) -> {after:,} B with its options"
    where = ""
    if with_options:
        where = " with its options" if stated else " with the options of --order-guarantee session"
    return f"; measured peak{where} {before:,} -> {after:,} B"


def as_predicted(verification: VerificationSection) -> str:
    """Return whether the arenas of TensorFlow Lite Micro are as they were predicted, to follow what was measured."""
    known = [
        one.as_predicted and one.measured_least_bytes == one.predicted_least_bytes
        for one in (verification.arena_before, verification.arena_after)
        if one is not None
    ]
    return " (64 bit), to the byte as predicted" if all(known) else " (64 bit)"


def arena_lines(report: OptimizeReport) -> list[Line]:
    """Return a warning per arena that TensorFlow Lite Micro laid otherwise than predicted."""
    verification = report.sections.verification
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


def smaller_process(rows: Sequence[SessionRow]) -> tuple[int, int] | None:
    """Return the processes of both files in sessions without options if the second needs less, otherwise None.

    Returns:
        Bytes for the original and for the written file.
    """
    plain = {row.file: row.process_bytes for row in rows if _is_plain(row)}
    given, written = plain.get("given"), plain.get("written")
    return None if given is None or written is None or written >= given else (given, written)


def default_session_line(report: OptimizeReport) -> tuple[Line | None, bool]:
    """Return what a session without options needs before and after, and whether that is a warning."""
    verification = report.sections.verification
    if verification is None or verification.default_peak_before_bytes is None:
        return None, False
    before, after = verification.default_peak_before_bytes, verification.default_peak_after_bytes
    what = verification.default_session or _DEFAULT_SESSION
    # LiteRT stands in for TensorFlow Lite Micro in verifying outputs; its arena is of no interest there.
    if _unchanged(report) or report.sections.tflm is not None or report.sections.interpreter is not None:
        return None, False
    if after is None:
        return (f"{what} cannot run the model written", "yellow"), True
    figures = f"{before:,} -> {after:,} B"
    with_options = len(verification.measured_with) > 1
    promised = verification.measured_peak_after_bytes
    if after > before and smaller_process(report.sections.sessions) is not None:
        return None, False
    if after > before:
        rest = "open this file with its options" if with_options else "keep the file as given for such sessions"
        if with_options and promised is not None and before <= promised:
            rest = "keep the file as given, which needs no more so than this one with its options"
        return (f"{what} needs more than before: {figures}; {rest}", "yellow"), True
    if with_options and promised is not None and before <= promised:
        rest = "no more than this file with its options: its optimisations save as much"
        return (f"{what} needs {figures}: for the file as given {rest}", "yellow"), True
    if after == before:
        return (f"{what} needs {figures}: nothing is saved there", "yellow"), False
    return (f"{what} needs {figures}", None), False


def apart_lines(report: OptimizeReport) -> list[Line]:
    """Return how far outputs are from those of the file as given as most people open it, where that is another way."""
    shown, guarantee = report.sections.verification, report.guarantee
    stated = guarantee is not None and guarantee.session_options
    if shown is None or not shown.default_relative_error or not stated or _unchanged(report):
        return []
    apart = f"at most {shown.default_relative_error:.1e} of the largest value"
    what = f"outputs beside the file as given in {_DEFAULT_SESSION}"
    return [(f"{what}: {apart}, as such a session rewrites operators", None)]


def held_back_lines(report: OptimizeReport) -> list[Line]:
    """Return why what was found is not written, where it is not; the suggestions name the sessions that it is for."""
    held = report.sections.held_back
    if held is None:
        return []
    listed = held.listed_cpu_ratio
    file = (
        f"a file that needs {held.requirement_bytes:,} B with --order-guarantee session"
        f"{'' if listed is None else f', at {listed:.2f} x the processor time'}"
    )
    times = "" if held.cpu_ratio is None else f", measured at {held.cpu_ratio:.2f} x the processor time"
    figures = f"{held.default_peak_before_bytes:,} -> {held.default_peak_after_bytes:,} B"
    why = f"would need {figures}{times}"
    if held.process_before_bytes is not None and held.process_after_bytes is not None:
        figures = f"{format_size(held.process_before_bytes)} -> {format_size(held.process_after_bytes)}"
        why = f"would take {figures} of the process{times}"
    elif held.default_peak_after_bytes > held.default_peak_before_bytes:
        why = f"would need more than before ({figures})"
    text = f"not written, as {_DEFAULT_SESSION} {why}: {file}"
    return [(text, "yellow")]


def executed_lines(report: OptimizeReport) -> list[Line]:
    """Return what the file holds where ONNX Runtime's own graph was written, and what its session took."""
    executed = report.sections.executed
    if executed is None:
        return []
    lines: list[Line] = []
    block = executed.block_channels
    if block:
        text = f"ONNX Runtime's own graph at level {executed.level}, for processors of blocks of {block} channels alone"
        lines.append((f"{text}, as this one is: {executed.processor}", "yellow"))
    else:
        lines.append((f"ONNX Runtime's own graph at level {executed.level}, for any processor", None))
    return lines


def process_lines(report: OptimizeReport) -> list[Line]:
    """Return what the process takes with either file, and at what cost of time; in yellow what is slower than asked."""
    rows = report.sections.sessions
    if not rows:
        return []
    if rows[0].process_bytes is None:
        return _times_line(rows[1:])
    first, lines = rows[0].process_bytes, []
    growing = "" if rows[0].settled else f", still growing after {rows[0].runs} runs,"
    text = f"the process, measured: {format_size(first)}{growing} for the file as given in a session without options"
    for row in rows[1:]:
        if row.file == "written" and row.process_bytes is not None and row.cpu_ratio is not None:
            how = "in one, too" if _is_plain(row) else "with its options"
            growing = "" if row.settled else f", still growing after {row.runs} runs,"
            figures = f"{format_size(row.process_bytes)}{growing} at {row.cpu_ratio:.2f} x the processor time"
            lines.append((f"this file {how}: {figures}", row.cpu_ratio > 1 + _SLOWER))
    told = [part for part, _ in lines]
    slow = any(slower for _, slower in lines)
    return [("; ".join([text, *told]), "yellow" if slow else None)] if told else []


def _times_line(rows: Sequence[SessionRow]) -> list[Line]:
    """Return what sessions on the file written cost of time, where their memory is lost in that of a process."""
    told = [
        f"{row.cpu_ratio:.2f} x {'without options' if _is_plain(row) else 'with its options'}"
        for row in rows
        if row.cpu_ratio is not None
    ]
    slow = any(row.cpu_ratio is not None and row.cpu_ratio > 1 + _SLOWER for row in rows)
    text = "the processor time, measured beside the file as given in a session without options: "
    return [(text + ", ".join(told), "yellow" if slow else None)] if told else []


def _is_plain(row: SessionRow) -> bool:
    return row.level == "all" and row.execution_order == "default" and row.mem_pattern


_SLOWER: Final = 0.1
"""What ``--max-slowdown`` permits where nothing else was said."""


def size_lines(report: OptimizeReport) -> list[Line]:
    """Return for which sizes alone the model written holds, and what other sizes gave where any are open."""
    lines: list[Line] = []
    held = () if report.output is None else report.output.fixed_dimensions
    if held:
        sizes = ", ".join(f"{one.dimension} = {one.size}" for one in held)
        refused = format_named(report.model.format).traits.other_sizes
        lines.append((f"fixed in the file, as pieces hold for one size alone: {sizes}; {refused}", None))
    return lines + tried_lines(() if report.sections.verification is None else report.sections.verification.other_sizes)


class TriedSize(Protocol):
    """A size at which both models were run, as a verification or a report has it."""

    @property
    def dimension(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def outcome(self) -> str: ...


def tried_lines(tried: Sequence[TriedSize]) -> list[Line]:
    """Return what other sizes gave."""
    lines: list[Line] = []
    for outcome, text in _OUTCOMES.items():
        found = [f"{one.dimension} = {one.size}" for one in tried if one.outcome == outcome]
        if found:
            lines.append((f"tried at other sizes: {', '.join(found)}: {text}", "red" if outcome == "wrong" else None))
    return lines


_OUTCOMES: Final = {
    "refused": "refused, as they must be",
    "equal": "the same outputs as the model as given",
    "wrong": "WRONG",
}


def _unchanged(report: OptimizeReport) -> bool:
    return report.output is not None and report.output.unchanged
