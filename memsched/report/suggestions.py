"""What would help, as it was tried, with the commands to paste: the last lines of a summary, a section of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsched.base.units import format_size
from memsched.report.text import print_line
from memsched.report.values.optimize import OptimizeReport, SuggestionRow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_suggestion", "suggestion_lines"]


def print_suggestion(console: Console, report: OptimizeReport) -> None:
    """Print the suggestions of the report, the one to name first at their head; nothing where there is none."""
    for number, (text, command) in enumerate(suggestion_lines(report)):
        first = "what helps, as tried" if number == 0 else "or"
        print_line(console, f"{first}: {text}:", style="bold" if number == 0 else None)
        print_line(console, f"  {command}", whole=True)


def suggestion_lines(report: OptimizeReport) -> list[tuple[str, str]]:
    """Return per suggestion what it gives, in words, and its command; the one to name first comes first."""
    lines = []
    for one in report.suggestions:
        if one.process_bytes is not None and one.process_saving_bytes is not None:
            lines.append((_measured(one, one.process_bytes, one.process_saving_bytes), one.command))
            continue
        before = one.requirement_bytes + one.saving_bytes
        percent = 100 * one.saving_bytes / before if before else 0.0
        extra, budget = one.extra_macs_percent, report.budget
        work = f"at most {extra:g} % more work" if extra else "no more work"
        # With a budget a command ends as soon as that is met.
        enough = budget is not None and one.requirement_bytes == budget.budget_bytes
        text = (
            f"{one.what}, {before:,} -> {one.requirement_bytes:,} B"
            f"{' or less' if enough else ''} ({percent:.1f} % less) for {work}{_time(one)}"
        )
        lines.append((text, one.command))
    return lines


def _time(one: SuggestionRow) -> str:
    if one.slowdown_percent is None:
        return ""
    return f", measured at {1 + one.slowdown_percent / 100:.2f} x the processor time"


def _measured(one: SuggestionRow, process: int, saving: int) -> str:
    before, ratio = one.requirement_bytes + one.saving_bytes, 1 + (one.slowdown_percent or 0.0) / 100
    # What is not saved may be more than as given, whose figure is not known then.
    activations = f"; activations {before:,} -> {one.requirement_bytes:,} B" if one.saving_bytes else ""
    return (
        f"{one.what}, whose process takes {format_size(process)} instead of {format_size(process + saving)} "
        f"({100 * saving / (process + saving):.1f} % less), measured at {ratio:.2f} x the processor time{activations}"
    )
