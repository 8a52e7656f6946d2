"""The page's picture of memory against size, and its table."""

from __future__ import annotations

from memsched.base.shown import NAME_COLUMNS
from memsched.report.blocks import curve_cells, grows_most, told_sizes
from memsched.report.page_parts import Cells, CurveColumns
from memsched.report.text import shortened
from memsched.report.values.optimize import OptimizeReport

__all__ = ["curve_columns", "curve_table"]


def curve_columns(report: OptimizeReport) -> CurveColumns | None:
    """Return what is drawn of a report's curve; None where it has none of two sizes at least."""
    if report.sections.curve is None or len(report.sections.curve.rows) < 2:
        return None
    rows = report.sections.curve.rows
    dimension = grows_most(report.sections.curve)
    process = [row.process_bytes for row in rows if row.process_bytes is not None]
    return CurveColumns(
        dimension=shortened(dimension, NAME_COLUMNS),
        at=[row.sizes[dimension] for row in rows],
        size=[shortened(told_sizes(row.sizes), NAME_COLUMNS) for row in rows],
        requested=[row.requested_bytes for row in rows],
        process=process if len(process) == len(rows) else [],
        budget=None if report.budget is None else report.budget.budget_bytes,
    )


def curve_table(report: OptimizeReport) -> Cells:
    """Return a row per size: size, activations, process, and whether that was measured."""
    return [curve_cells(row) for row in report.sections.curve.rows] if report.sections.curve is not None else []
