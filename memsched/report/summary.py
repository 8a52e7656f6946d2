"""What a command prints unless asked for more: at most twelve lines, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from memsched.base.frozen import FrozenValue
from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted, format_size
from memsched.report.applied import applied_lines
from memsched.report.assumed import assumed_lines
from memsched.report.blocks import told_sizes
from memsched.report.budget import budget_lines
from memsched.report.console import print_details, step_at_peak
from memsched.report.guarantees import own_operators
from memsched.report.interpreter import refused_lines
from memsched.report.outputs import was_rewritten
from memsched.report.pools import pool_lines
from memsched.report.predicted import bound_is_void, measured_instead
from memsched.report.refusals import plan_lines, unknown_lines
from memsched.report.sessions import arena_lines, as_predicted, default_session_line, held_back_lines, size_lines
from memsched.report.suggestions import suggestion_lines
from memsched.report.text import SAME_OUTPUTS, WITHHELD, print_line, shortened, wrapped
from memsched.report.values.blocks import CurveSection
from memsched.report.values.optimize import OptimizeReport
from memsched.report.verdict import verdict_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["BESIDE_FRONTIER", "MOST_LINES", "SummaryLine", "print_summary", "summary_lines"]

MOST_LINES: Final = 12
"""Lines of a summary in the terminal; a path, a command or code that wraps counts as one."""

BESIDE_FRONTIER: Final = MOST_LINES - ROWS_SHOWN - 4
"""Lines of a summary above a frontier, whose table has a title, a head of two lines, and one on what is left out."""

_TENSOR_RANKS: Final = (1, 5, 7)
"""Ranks of the largest tensors at the peak."""

_FIRST_ALTERNATIVE: Final = 2
_OTHER_ALTERNATIVES: Final = 5

_NOTES: Final = 8
"""The rank of notes, which are left out before any other line is cut."""


class SummaryLine(FrozenValue, frozen=True):
    """A line of the summary.

    Attributes:
        style: Of the whole line.
        whole: Never broken: people copy a path or a command from it.
        rank: Lines of the highest rank are left out first if there are too many; those of rank 0 stay.
    """

    text: str
    style: str | None = None
    whole: bool = False
    rank: int = 0


def print_summary(
    console: Console,
    report: OptimizeReport,
    *,
    report_path: str | None,
    html_path: str | None = None,
    withheld: bool = False,
    verbose: bool = False,
    room: int = MOST_LINES,
) -> None:
    """Print the summary, with ``verbose`` followed by all details.

    Args:
        report_path: Where the report was written, if anywhere.
        html_path: Where the page was written, if anywhere.
        withheld: No file was written, as the budget is missed.
        room: Lines that it may take; what nobody must miss is printed even so.
    """
    files = {"report": report_path, "page": html_path}
    lines = summary_lines(report, console.width, files=files, withheld=withheld)
    _print_fitted(console, lines, max(room, sum(line.rank == 0 for line in lines)))
    if verbose:
        console.print()
        print_details(console, report)


def summary_lines(
    report: OptimizeReport, columns: int, *, files: Mapping[str, str | None], withheld: bool = False
) -> list[SummaryLine]:
    """Return the lines in their order: verdict, budget, rewrites, quality, files, warnings, and what gains more.

    A target that memsched chose for the file comes before them.

    Args:
        columns: Into which names are shortened.
        files: Paths of what was written beside the model, by what they are.
    """
    target = report.target
    lines = [SummaryLine(f"target {target.name}: {target.reason}")] if target.reason else []
    lines += [SummaryLine(*verdict_line(report)), *_budget_lines(report), *_run_lines(report)]
    if report.sections.curve is not None:
        lines += _curve_lines(report.sections.curve, columns)
    if report.command == "optimize":
        lines += [SummaryLine(*line) for line in applied_lines(report)]
    elif report.sections.curve is None:
        lines += _fault_lines(report, columns)
    if report.sections.open_loops is None and report.sections.curve is None:
        lines.append(SummaryLine(*quality_line(report), rank=4))
    lines += [] if withheld else _file_lines(report, files)
    lines += [SummaryLine(WITHHELD, "red")] if withheld else []
    lines += [SummaryLine(text, "yellow") for text in assumed_lines(report.assumed, report.model.path)]
    lines += [SummaryLine(*line) for line in _warnings(report)]
    stated = () if report.sections.verification is None else report.sections.verification.stated
    lines += [SummaryLine(f"note: {note}", rank=_NOTES) for note in stated]
    if report.verdict.notes:
        told = f"{counted(len(report.verdict.notes), 'note')} in the report, or with -v"
        lines.append(SummaryLine(told, "dim", rank=_NOTES + 1))
    for number, (text, command) in enumerate(suggestion_lines(report)):
        first = "try next" if number == 0 else "or"
        rank = _FIRST_ALTERNATIVE if number == 0 else min(_OTHER_ALTERNATIVES + number, _NOTES - 1)
        lines.append(SummaryLine(f"{first}: {text}:", "bold" if number == 0 else None, rank=rank))
        lines.append(SummaryLine(f"  {command}", whole=True, rank=rank))
    return lines


def quality_line(report: OptimizeReport) -> tuple[str, str | None]:
    """Return in a line whether the order is proven best, or by how much a better one may be missed."""
    proof = report.proof
    gap = 100 * (proof.bytes - proof.bound_bytes) / proof.bytes if proof.bytes else 0.0
    if bound_is_void(report):
        return "quality: not known, as the memory plan lays tensors over each other", None
    if measured_instead(report) is not None:
        return "quality: not known, as this runtime was measured to need other than predicted", None
    if report.command == "analyze":
        if proof.status == "optimal":
            return f"order: proven minimum, no other order needs less than {proof.bound_bytes:,} B", None
        return (
            f"order: another one may save up to {gap:.1f}% of the peak, none goes below {proof.bound_bytes:,} B",
            None,
        )
    whose = "the rewritten model" if was_rewritten(report) else "its operators" if own_operators(report) else ""
    scope = f" of {whose}" if whose else ""
    if proof.status == "optimal":
        return f"quality: peak {proof.bytes:,} B, proven minimum over all orders{scope}", None
    return f"quality: peak {proof.bytes:,} B, gap {gap:.1f}% to the lower bound{scope}", None


def _budget_lines(report: OptimizeReport) -> Iterator[SummaryLine]:
    """Yield whether the budget is met and, if it is missed, which of the changes below would meet it."""
    budget = report.budget
    for text, style in budget_lines(report):
        missed = None if budget is None or budget.met else budget.budget_bytes
        meets = [one.what for one in report.alternatives if missed is not None and one.bytes <= missed]
        yield SummaryLine(f"{text.partition('; ')[0]}; met by {meets[0]}, see below" if meets else text, style)


def _run_lines(report: OptimizeReport) -> Iterator[SummaryLine]:
    """Yield what a run on this machine measured of an arena that is predicted for another one."""
    shown = report.sections.verification
    if shown is None or shown.arena_after is None or report.output is None:
        return
    before, after = shown.measured_peak_before_bytes, shown.measured_peak_after_bytes
    if before is not None and after is not None:
        figures = f"{after:,} B" if report.output.unchanged else f"{before:,} -> {after:,} B"
        yield SummaryLine(f"measured in {shown.runtime}: {figures}{as_predicted(shown)}", rank=3)


def _fault_lines(report: OptimizeReport, columns: int) -> Iterator[SummaryLine]:
    """Yield the step that sets the peak with the largest tensors that are live in it."""
    faults, step = report.written.at_fault, step_at_peak(report)
    if step is None or not faults:
        return
    text = f"peak of {report.written.schedule.peak_bytes:,} B in step {step.index}, {step.type}"
    yield SummaryLine(f"{text} '{shortened(step.op, columns - len(text) - 4)}':", rank=1)
    for rank, fault in zip(_TENSOR_RANKS, faults, strict=False):
        size = f"  {fault.size_bytes:>14,}  "
        yield SummaryLine(f"{size}{shortened(fault.tensor, columns - len(size))}", rank=rank)


def _curve_lines(curve: CurveSection, columns: int) -> Iterator[SummaryLine]:
    """Yield what the ends and the middle of a range take, and the tensors that grow most."""
    for place in sorted({0, len(curve.rows) // 2, len(curve.rows) - 1}):
        row = curve.rows[place]
        process = "" if row.process_bytes is None else f", process {format_size(row.process_bytes)}"
        measured = " (measured)" if row.measured_bytes is not None else " (predicted)"
        activations = format_size(row.requested_bytes)
        yield SummaryLine(f"  {told_sizes(row.sizes)}: activations {activations}{process}{measured}")
    for rank, one in zip(_TENSOR_RANKS, curve.growth, strict=False):
        text = f"  {one.size_bytes:>14,}  {one.expression}: "
        yield SummaryLine(text + shortened(one.tensor, columns - len(text)), rank=rank)


def _file_lines(report: OptimizeReport, files: Mapping[str, str | None]) -> Iterator[SummaryLine]:
    output, guarantee = report.output, report.guarantee
    if output is not None and output.path is not None:
        unchanged = " (the input, unchanged)" if output.unchanged else ""
        yield SummaryLine(f"model:  {output.path}{unchanged}", whole=True)
    for what, path in files.items():
        if path is not None:
            yield SummaryLine(f"{what + ':':<7} {path}", whole=True)
    if guarantee is not None and guarantee.session_options:
        yield SummaryLine(f"open with: {'; '.join(guarantee.session_options)}", whole=True)


def _warnings(report: OptimizeReport) -> Iterator[tuple[str, str | None]]:
    """Yield what nobody must miss, the refusal of the model apart, which the verdict names."""
    shown = report.sections.verification
    yield from plan_lines(report)
    yield from unknown_lines(report)
    yield from pool_lines(report.sections.pools)
    if report.verdict.interrupted:
        yield "the search ended early: this is the best found so far", "yellow"
    if report.command == "analyze":
        return
    measured = measured_instead(report)
    if measured is not None:
        yield measured, "yellow"
    yield from held_back_lines(report)
    if report.sections.interpreter is not None:
        yield from refused_lines(report.sections.interpreter)
    default, urgent = default_session_line(report)
    if default is not None and urgent:
        yield default
    yield from size_lines(report)
    yield from arena_lines(report)
    if shown is not None:
        if shown.executed_order_matches is False:
            yield f"{shown.runtime} does not execute this order: {shown.reason}", "yellow"
        if shown.outputs_vary is False:
            yield f"warning: {SAME_OUTPUTS}", "yellow"
    for failure in report.sections.failures:
        if failure.defect:
            yield f"warning: {failure.what} was dropped: {failure.reason}; please report it", "yellow"


def _print_fitted(console: Console, lines: list[SummaryLine], room: int) -> None:
    """Print lines, at most ``room`` of the terminal: the least important are left out, and long ones are cut."""
    while _too_high(console, lines, room):
        last = max(line.rank for line in lines)
        lines = [line for line in lines if line.rank != last]
    lines = lines[:room]
    limit = next((most for most in range(room, 1, -1) if _height(console, lines, most) <= room), 1)
    for line in lines:
        print_line(console, line.text, line.style, whole=line.whole, most=limit)


def _too_high(console: Console, lines: list[SummaryLine], room: int) -> bool:
    """Whether a line has to be left out: a note before anything is cut, others only if each keeps two lines."""
    last = max(line.rank for line in lines)
    return last > 0 and _height(console, lines, room if last >= _NOTES else 2) > room


def _height(console: Console, lines: list[SummaryLine], most: int) -> int:
    """Return how many lines of the terminal these need if each may need ``most``."""
    return sum(1 if line.whole else min(most, len(wrapped(console, line.text))) for line in lines)
