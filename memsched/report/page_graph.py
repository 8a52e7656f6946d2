"""The graph on the page: where its ops lie, what they read, and how much each of them needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import digits

from memsched.base.shown import LABEL_COLUMNS
from memsched.report.page_layout import UNITS, lay_out
from memsched.report.page_parts import GraphColumns
from memsched.report.text import shortened
from memsched.report.values.graphs import StepRow
from memsched.report.values.optimize import OptimizeReport

__all__ = ["graph_columns"]

_MOST = 120_000
"""Ops that are on the page; of more, those nearest to the peak."""


def graph_columns(report: OptimizeReport, peak_step: int) -> GraphColumns | None:
    """Return the graph as it is executed; None if there are no steps."""
    steps = report.written.steps
    if not steps:
        return None
    first = max(0, min(peak_step - _MOST // 2, len(steps) - _MOST))
    shown = steps[first : first + _MOST]
    reads = list(_reads(shown))
    layout = lay_out(reads)
    types = {name: place for place, name in enumerate(dict.fromkeys(step.type for step in shown))}
    peak = max(1, report.written.schedule.peak_bytes)
    return GraphColumns(
        first=first,
        unit=UNITS,
        layer=list(_differences(layout.layer)),
        across=layout.across,
        count=[len(before) for before in reads],
        reads=[op - other for op, before in enumerate(reads) for other in before],
        bends=[[op, *chain] for op, chain in layout.bends.items()],
        types=[shortened(name, LABEL_COLUMNS) for name in types],
        type=[types[step.type] for step in shown],
        shade="".join(str(step.footprint_bytes * (len(digits) - 1) // peak) for step in shown),
    )


def _reads(steps: Sequence[StepRow]) -> Iterator[list[int]]:
    """Yield per step the earlier ones among them whose results it reads, counted from the first."""
    first = steps[0].index
    for place, step in enumerate(steps):
        # A report from elsewhere may say that a step reads what a later one makes.
        yield sorted({made - first for made in step.reads_from if first <= made < first + place})


def _differences(values: Sequence[int]) -> Iterator[int]:
    """Yield each value less the one before, which are shorter."""
    before = 0
    for value in values:
        yield value - before
        before = value
