"""What would help, as it was tried, with the commands to paste: the last lines of a summary, a section of the page."""

from __future__ import annotations

from memsched.base.units import format_size
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.verdict import AlternativeRow

__all__ = ["suggestion_lines"]


def suggestion_lines(report: OptimizeReport) -> list[tuple[str, str]]:
    """Return per suggestion what it gives, in words, and its command; the one to name first comes first."""
    lines = []
    for one in report.alternatives:
        if one.process_bytes is not None and one.process_saving_bytes is not None:
            text = _measured(one, one.process_bytes, one.process_saving_bytes)
            lines.append((text + _changes(one), one.command))
            continue
        before = one.bytes + one.saving_bytes
        percent = 100 * one.saving_bytes / before if before else 0.0
        extra, budget = one.extra_macs_percent, report.budget
        work = f"at most {extra:g}% more work" if extra else "no more work"
        # With a budget a command ends as soon as that is met.
        enough = budget is not None and one.bytes == budget.budget_bytes
        text = (
            f"{one.what}, {before:,} -> {one.bytes:,} B"
            f"{' or less' if enough else ''} (-{percent:.0f}%), {work}{_time(one)}"
        )
        lines.append((text + _changes(one), one.command))
    return lines


def _changes(one: AlternativeRow) -> str:
    """Return what a caller of the file would notice, in the words of --may-change."""
    return f"; changes {', '.join(one.changes)}" if one.changes else ""


def _time(one: AlternativeRow) -> str:
    return "" if one.time_ratio is None else f", time {one.time_ratio:.2f}x"


def _measured(one: AlternativeRow, process: int, saving: int) -> str:
    before, given = one.bytes + one.saving_bytes, process + saving
    # What is not saved may be more than as given, whose figure is not known then.
    activations = f"; activations {before:,} -> {one.bytes:,} B" if one.saving_bytes else ""
    change = f"{format_size(given)} -> {format_size(process)} ({-100 * saving / max(given, 1):+.0f}%)"
    memory = "private process memory" if one.private else "process memory"
    return f"{one.what}, {memory} {change}{_time(one)}{activations}"
