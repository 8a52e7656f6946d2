"""What people read of a report's ledger."""

from __future__ import annotations

from collections.abc import Iterator

from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.verdict import LedgerRow

__all__ = ["pass_lines", "passes_of"]


def passes_of(report: OptimizeReport) -> Iterator[LedgerRow]:
    """Yield the passes of the search for the order that is written."""
    return (row for row in report.ledger if row.work_percent is None and row.applied)


def pass_lines(report: OptimizeReport) -> list[str]:
    """Return a line for each pass of the search for the order that is written."""
    return [
        f"pass {row.pass_}: {row.ops_before:,} -> {row.ops_after or 0:,} ops, "
        f"{row.before_bytes:,} -> {row.found_bytes or 0:,} B, {row.seconds:.2f} s{row.reason and ', '}{row.reason}"
        for row in passes_of(report)
    ]
