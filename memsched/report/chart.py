"""Footprints over time as a few rows of characters: how a model's memory looks before and after, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsched.base.frozen import FrozenValue
from memsched.base.shown import LINE_COLUMNS
from memsched.base.units import format_size
from memsched.report.text import LEAST_COLUMNS
from memsched.report.values.optimize import OptimizeReport

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Series", "chart_rows", "footprint_series", "print_footprints"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:#"
_GUTTER = 13
"""Columns left of the rows, for a name and a size."""
_BUDGET_SHOWN = 2
"""A budget beyond so many times the peak is left out: it would flatten the footprints."""


class Series(FrozenValue, frozen=True):
    """Footprints of one order, in bytes per step."""

    label: str
    footprints: Sequence[int]

    @property
    def peak(self) -> int:
        """Return the largest, 0 where there is none."""
        return max(self.footprints, default=0)


def footprint_series(report: OptimizeReport) -> list[Series]:
    """Return what a report says of footprints over time: of the order as given, and of the result where it differs.

    Reports of versions that did not write the file's footprints give the result alone.
    """
    after = tuple(step.footprint_bytes for step in report.written.steps)
    before = tuple(step.footprint_bytes for step in report.original.steps)
    if report.command != "optimize":
        return [Series("file order", after)]
    if before in {(), after}:
        return [Series("memsched", after)]
    return [Series("file order", before), Series("memsched", after)]


def print_footprints(console: Console, report: OptimizeReport) -> None:
    """Print the footprints as wide as the terminal, in ASCII where its encoding has no block characters."""
    from rich.text import Text

    budget = None if report.budget is None else report.budget.budget_bytes
    series = [one for one in footprint_series(report) if one.footprints]
    columns = min(console.width - 1, _GUTTER + LINE_COLUMNS) - _GUTTER
    if not series or columns < LEAST_COLUMNS or not max(one.peak for one in series):
        return
    rich = _encodable(console.encoding)
    scale = max(one.peak for one in series)
    if budget is not None and budget <= _BUDGET_SHOWN * scale:
        scale = max(scale, budget)
    else:
        budget = None
    for number, one in enumerate(series):
        style = "green" if number or len(series) == 1 else "yellow"
        edge = "│" if rich else "|"
        heads = (one.label, format_size(one.peak), f"{len(one.footprints):,} steps")
        rows = chart_rows(one.footprints, columns, scale=scale, budget=budget, blocks=rich, rows=len(heads))
        for head, row in zip(heads, rows, strict=True):
            line = Text(f"{head:<{_GUTTER - 1}}{edge}")
            line.append(row, style=style)
            console.print(line, soft_wrap=True)
    if budget is not None:
        mark = _BUDGET_MARKS[rich]
        console.print(Text(f"{'':<{_GUTTER}}{mark * 3} budget {format_size(budget)}", style="dim"), soft_wrap=True)


_BUDGET_MARKS = {True: "╌", False: "-"}


def _encodable(encoding: str) -> bool:
    try:
        f"{_BLOCKS}│╌".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def chart_rows(
    footprints: Sequence[int],
    columns: int,
    *,
    scale: int,
    budget: int | None = None,
    blocks: bool = True,
    rows: int,
) -> list[str]:
    """Return ``rows`` lines, the top one first, of ``columns`` characters each.

    A column shows the largest footprint of its steps, so that no peak is lost; anything above 0 shows at least a mark.

    Args:
        footprints: Bytes per step, one or more.
        scale: Bytes that fill all rows.
        budget: Bytes that a line marks where nothing is drawn; None for no line.
        blocks: Eighths of characters; otherwise ASCII, in thirds.
    """
    marks = _BLOCKS if blocks else _ASCII
    levels = len(marks) - 1
    heights = [-(-largest * rows * levels // scale) for largest in _largest(footprints, columns)]
    line = None if budget is None else min(rows - 1, budget * rows // scale)
    result = []
    for row in reversed(range(rows)):
        cells = [marks[min(max(height - row * levels, 0), levels)] for height in heights]
        if row == line:
            cells = [_BUDGET_MARKS[blocks] if cell == " " else cell for cell in cells]
        result.append("".join(cells))
    return result


def _largest(footprints: Sequence[int], columns: int) -> list[int]:
    """Return per column the largest footprint of its steps; fewer steps than columns are drawn wider."""
    count = len(footprints)
    found = []
    for column in range(columns):
        first = column * count // columns
        last = max(first + 1, -(-(column + 1) * count // columns) if count > columns else first + 1)
        found.append(max(footprints[first:last]))
    return found
