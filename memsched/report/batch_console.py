"""The summary of a batch as people read it: a table, the failures, and where everything is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsched.base.units import counted, format_size
from memsched.report.text import LEAST_COLUMNS, console_table, print_line, shortened
from memsched.report.values.batch import BatchFigures, BatchReport, BatchRow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_batch"]

_HEADINGS = (("as given", 10), ("memsched", 10), ("%", 5), ("peak", 10))
_PROOF = len("gap 10.0 %")
_GAP = 3


def print_batch(console: Console, summary: BatchReport, folder: str) -> None:
    """Print a row for each model that was written, a line for each that was not, the sums, and the folder.

    A row says what the runtime allocates as given and now; the proof is of the peak.
    """
    done = [(model, model.result) for model in summary.models if model.result is not None]
    if done:
        headings: Sequence[tuple[str, int]] = _HEADINGS
        room = _room(console.width, headings)
        if room < LEAST_COLUMNS:
            headings = _HEADINGS[:-1]
            room = _room(console.width, headings)
        names = [heading for heading, _ in headings]
        table = console_table("model", *names, "proof", left=(0, len(names) + 1))
        for model, result in done:
            name, *figures = _cells(model.name, result, room)
            shown = (name, *figures[: len(headings)], figures[-1])
            table.add_row(*shown, style="yellow" if model.exit_code else None)
        console.print(table)
    for model in summary.models:
        if model.status == "failed":
            print_line(console, f"failed: {_with_path(model)}", "red")
        elif model.status == "not_run":
            print_line(console, f"not run: {model.path}", "yellow")
        elif model.status == "budget_missed":
            what = "its memories do not suffice"
            if model.result is not None and model.result.budget_met is False:
                what = f"{model.result.required_bytes:,} B are required"
            print_line(console, f"budget missed: {model.path}: {what}", "yellow")
        if model.result is not None and model.result.interrupted:
            print_line(console, f"--memory-limit ended the search: {model.path}: the best so far", "yellow")
    print_line(console, _sums(summary), "bold")
    print_line(console, f"all of it: {folder}", whole=True)


def _room(width: int, headings: Sequence[tuple[str, int]]) -> int:
    """Return the columns that the other cells of a row leave for a name."""
    return width - 1 - sum(columns + _GAP for _, columns in headings) - _PROOF - _GAP


def _with_path(model: BatchRow) -> str:
    """Return the error, which most often begins with the path or names it."""
    error = model.error or "unknown"
    return error if model.path in error else f"{model.path}: {error}"


def _cells(name: str, result: BatchFigures, columns: int) -> tuple[str, ...]:
    before, after = result.file_required_bytes, result.required_bytes
    peak, bound = result.peak_bytes, result.lower_bound_bytes
    proof = "optimal" if result.status == "optimal" else f"gap {100 * (peak - bound) / max(peak, 1):.1f} %"
    change = 100 * (after - before) / before if before else 0.0
    return (
        shortened(name, columns),
        format_size(before),
        format_size(after),
        f"{change:.1f}" if after != before else "0.0",
        format_size(peak),
        proof,
    )


def _sums(summary: BatchReport) -> str:
    totals = summary.totals
    words = (
        (totals.done, "done"),
        (totals.budget_missed, "missed the budget"),
        (totals.failed, "failed"),
        (totals.not_run, "not run"),
    )
    counts = ", ".join(f"{count} {word}" for count, word in words if count)
    interrupted = "interrupted: " if summary.interrupted else ""
    return (
        f"{interrupted}{counted(totals.models, 'model')}: {counts}; {totals.smaller} need less than as given, "
        f"{counted(totals.optimal, 'peak')} proven optimal; {summary.seconds:.1f} s"
    )
