"""The verdict: what the runtime allocates before and after, in one sentence that every reader shows first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from memsched.base.frozen import FrozenValue
from memsched.base.shown import ALIKE, WORTH_TELLING
from memsched.base.units import format_change, format_size
from memsched.report.blocks import curve_answer, told_sizes
from memsched.report.outputs import compared, kept_why, why_not_run
from memsched.report.predicted import measured_instead
from memsched.report.refusals import refusal_reason
from memsched.report.requirement import needed_memory
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.sessions import SessionRow
from memsched.report.values.verdict import Unit

__all__ = ["Change", "change_of", "change_text", "verdict_line", "verdict_sentence"]

_NOUNS: Final[Mapping[Unit, str]] = {
    "tflm_arena": "TensorFlow Lite Micro arena",
    "tflm_planned": "TensorFlow Lite Micro arena, planned part",
    "litert_arena": "LiteRT arena",
    "interpreter": "LiteRT process memory",
    "requested": "ONNX Runtime session requests",
    "process": "process memory",
}


class Change(FrozenValue, frozen=True):
    """What the model took and takes, in the unit that its user knows.

    Attributes:
        noun: The unit, such as "process memory".
        before: For the original, bytes.
        after: For the model written, or for the original if none was written, bytes.
        measured: A run of the runtime showed both; otherwise its rules predict them.
        process: They are sizes of processes, which vary from run to run: nobody needs their last byte.
        remark: For what they are predicted; "" if nothing has to be said.
        beside: What else was measured, to follow them; "" if nothing was.
    """

    noun: str
    before: int
    after: int
    measured: bool
    process: bool = False
    remark: str = ""
    beside: str = ""


def change_of(report: OptimizeReport) -> Change:
    """Return the figures of the verdict: measured ones of a process if there are some, else those that decided.

    A process varies by more than a few bytes: if both files take as much of it, what decided says more.
    """
    steady = _of_mapped(report) or _of_interpreter(report) or _of_range(report)
    process = steady or _of_session(report)
    if process is None:
        return _of_runtime(report)
    least = (ALIKE if steady is None else WORTH_TELLING) * process.before
    changed = report.output is not None and not report.output.unchanged
    if not changed or report.verdict.unit == "process" or abs(process.after - process.before) > least:
        return process
    found = _of_runtime(report)
    told = f"process memory {format_size(process.before)} as before"
    return found if found.before == found.after else msgspec.structs.replace(found, beside=told)


def _of_mapped(report: OptimizeReport) -> Change | None:
    """Return what processes keep to themselves if the weights are mapped, which the system can drop at any time."""
    section = report.sections.mapped
    if section is None:
        return None
    before, after = section.given, section.written
    peak = f"{format_change(format_size(before.peak_bytes), format_size(after.peak_bytes))} at the peak"
    noun = "private process memory"
    return Change(noun, before.private_bytes, after.private_bytes, measured=True, process=True, beside=peak)


def _of_interpreter(report: OptimizeReport) -> Change | None:
    section = report.sections.interpreter
    if section is None:
        return None
    given, written = section.given, section.written or section.given
    noun = "LiteRT process memory"
    return Change(noun, given.private_bytes, written.private_bytes, measured=True, process=True)


def _of_range(report: OptimizeReport) -> Change | None:
    """Return what was measured at the largest size of a range; None without one."""
    section = report.sections.open_loops
    if section is None or not section.measured:
        return None
    row = section.measured[0]
    noun, given = f"process memory ({told_sizes(row.sizes)})", row.given_process_bytes
    return Change(noun, given, given if row.process_bytes is None else row.process_bytes, measured=True, process=True)


def _of_session(report: OptimizeReport) -> Change | None:
    """Return what ONNX Runtime's process took, if it was measured with both files as each would be opened."""
    rows = report.sections.sessions
    if not rows or rows[0].process_bytes is None:
        return None
    given = rows[0].process_bytes
    if report.output is None or report.output.unchanged:
        return Change("process memory", given, given, measured=True, process=True)
    row = written_session(report)
    if row is None or row.process_bytes is None:
        return None
    return Change("process memory", given, row.process_bytes, measured=True, process=True)


def written_session(report: OptimizeReport) -> SessionRow | None:
    """Return the session in which the file written is to be opened; None if none was measured."""
    rows = [row for row in report.sections.sessions if row.file == "written"]
    # The session without options comes first.
    return None if not rows else rows[-1] if _opened_with_options(report) else rows[0]


def _of_runtime(report: OptimizeReport) -> Change:
    """Return what decides: the figures of a runtime's arena, or of its session."""
    verdict = report.verdict
    noun = _NOUNS.get(verdict.unit, f"{report.target.name} arena")
    # Both files are measured with the options of this guarantee.
    if verdict.unit == "requested" and _opened_with_options(report) and verdict.session == "session":
        noun = "ONNX Runtime session with options requests"
    before, after = _measured(report) if report.command == "optimize" else (None, None)
    if before is not None and after is not None:
        return Change(noun, before, after, measured=True)
    remark = "for 32 bit" if verdict.unit == "tflm_arena" else ""
    process = verdict.unit == "interpreter"
    return Change(noun, verdict.original_bytes, verdict.bytes, measured=False, process=process, remark=remark)


def _opened_with_options(report: OptimizeReport) -> bool:
    return report.guarantee is not None and bool(report.guarantee.session_options)


def _measured(report: OptimizeReport) -> tuple[int | None, int | None]:
    """Return what a run showed of both files, each opened as it is meant to be; None if none did."""
    taken, shown = report.sections.requirement, report.sections.verification
    if shown is None or shown.arena_after is not None or not shown.at_stated_sizes:
        return taken.measured_given_bytes, taken.measured_bytes
    requested = report.verdict.unit == "requested"
    if (requested and _opened_with_options(report)) or measured_instead(report) is not None:
        return shown.measured_peak_before_bytes, shown.measured_peak_after_bytes
    if not requested or shown.default_peak_before_bytes is None:
        return taken.measured_given_bytes, taken.measured_bytes
    kept = report.output is not None and report.output.unchanged
    before, after = shown.default_peak_before_bytes, shown.default_peak_after_bytes
    return before, before if kept else after


def verdict_sentence(report: OptimizeReport) -> str:
    """Return the verdict of a report."""
    return verdict_line(report)[0]


def verdict_line(report: OptimizeReport) -> tuple[str, str | None]:
    """Return the verdict with its style: green for a gain, yellow for none that was hoped for, red for a failure."""
    curve = report.sections.curve
    if curve is not None:
        return curve_answer(curve, None if report.budget is None else report.budget.budget_bytes)
    change, refused = change_of(report), refusal_reason(report)
    label = "" if change.measured else ", predicted" + (f" {change.remark}" if change.remark else "")
    label += f", {change.beside}" if change.beside else ""
    if report.command == "analyze":
        parts = needed_memory(report).parts_text()
        reason = f"; {refused}" if refused else f": {parts}" if parts else ""
        return f"{change.noun} {_size(change, change.after)}{label}{reason}", "red" if refused else None
    good, outputs = compared(report.sections)
    if report.output is not None and report.output.unchanged:
        reason = f"{refused or unchanged_reason(report)}{_not_run(report)}"
        text = f"{change.noun} {_size(change, change.before)}{label}, unchanged: {reason}"
        return text, "red" if refused else "yellow"
    row, ratio = written_session(report), report.verdict.time_ratio
    ratio = ratio if row is None or row.cpu_ratio is None else row.cpu_ratio
    time = "" if ratio is None else f", time {ratio:.2f}x"
    text = f"{change.noun} {change_text(change)}{label}{time}, outputs {outputs}{_not_run(report)}"
    if refused:
        return f"{text}; {refused}", "red"
    fits = report.budget is None or report.budget.met
    return text, "red" if good is False else "green" if change.after < change.before and good and fits else "yellow"


def unchanged_reason(report: OptimizeReport) -> str:
    """Return in a few words why the original is the result."""
    section = report.sections.interpreter
    if section is not None and section.refused:
        return "every other file takes more memory or time there"
    if report.verdict.interrupted:
        return "the search ended early"
    if report.alternatives and kept_why(report) == _NOTHING:
        return "nothing better was found that costs nothing"
    return kept_why(report)


_NOTHING: Final = "nothing better was found"


def _not_run(report: OptimizeReport) -> str:
    """Return why the outputs were not compared, to follow the verdict."""
    why = "" if refusal_reason(report) else why_not_run(report)
    return f" ({why})" if why else ""


def change_text(change: Change) -> str:
    """Return both figures with the difference in percent, such as "82,300 -> 44,748 B (-46%)"."""
    before, after = _size(change, change.before), _size(change, change.after)
    if before == after:
        return f"{before}, as before"
    percent = 100 * (change.after - change.before) / change.before if change.before else 0.0
    digits = 0 if abs(percent) >= 100 * WORTH_TELLING else 2
    return f"{format_change(before, after)} ({percent:+.{digits}f}%)"


def _size(change: Change, size: int) -> str:
    return format_size(size) if change.process else f"{size:,} B"
