"""The copies of tables on the pages of the documentation, and what differs from what was printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Comparison", "Table", "compared", "tables_of"]

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its cells as text; ``varying``: which columns hold figures of the run itself."""

    columns: Row
    rows: list[Row] = field(default_factory=list)
    varying: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison comes to: lines that say it, and how many rows differ."""

    lines: tuple[str, ...]
    count: int


def tables_of(page: str) -> list[Table]:
    """Return the tables of a page in Markdown, those in blocks of what a command printed among them."""
    found: list[Table] = []
    lines = page.splitlines()
    for above, text in zip(["", *lines], lines, strict=False):
        if not text.startswith("|"):
            continue
        if re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", text):
            found.append(Table(_cells(above)))
        elif found and above.startswith("|"):
            found[-1].rows.append(_cells(text))
    return found


def _cells(text: str) -> Row:
    return tuple(cell.strip() for cell in text.strip().strip("|").split("|"))


def compared(printed: Sequence[Table], copies: Sequence[Table], page: str) -> Comparison:
    """Compare each table printed with its copy: the one with the same columns of which most rows are the same.

    A copy may leave columns out; they are not compared, nor are figures of the run itself. Rows of the copy that were
    not printed are counted, but are no difference: a run may be of some models only.
    """
    lines: list[str] = []
    count = 0
    for table in printed:
        placed = [(copy, _places(table.columns, copy.columns)) for copy in copies]
        candidates = [_against(table, copy, places) for copy, places in placed if places]
        if not candidates:
            lines.append(f"{page}: has no table with the columns {', '.join(table.columns)}")
            count += 1
            continue
        best = min(candidates, key=lambda found: found.count)
        lines += best.lines
        count += best.count
    rows = sum(len(table.rows) for table in printed)
    lines.append(f"{page}: {count} of {rows} rows printed differ from the copy, seconds apart")
    return Comparison(tuple(lines), count)


def _places(printed: Row, copied: Row) -> list[int]:
    """Return where the copy's columns are among those printed, in the same order; nothing where they are not."""
    places: list[int] = []
    for column in copied:
        start = places[-1] + 1 if places else 0
        if column not in printed[start:]:
            return []
        places.append(printed.index(column, start))
    return places if len(places) * 2 > len(printed) else []


def _against(printed: Table, copy: Table, places: Sequence[int]) -> Comparison:
    fixed = [place for place in places if not printed.varying[place]]
    in_copy = [column for column, place in enumerate(places) if not printed.varying[place]]
    left = [_some(row, in_copy) for row in copy.rows]
    differing = []
    for row in printed.rows:
        cells = _some(row, fixed)
        if cells in left:
            left.remove(cells)
        else:
            differing.append(cells)
    lines = []
    for cells in differing:
        alike = max(left, key=lambda other, cells=cells: _alike(other, cells), default=None)  # type: ignore[misc]
        if alike is None or not _alike(alike, cells):
            lines.append(f"  not on the page: {' | '.join(cells)}")
            continue
        left.remove(alike)
        names = [printed.columns[place] for place in fixed]
        changes = [f"{name}: {old} -> {new}" for name, old, new in zip(names, alike, cells, strict=True) if old != new]
        lines.append(f"  {' | '.join(cells[: max(1, _alike(alike, cells))])}: {'; '.join(changes)}")
    if left:
        lines.append(f"  {len(left)} rows of the copy were not printed")
    return Comparison(tuple(lines), len(differing))


def _some(row: Row, places: Sequence[int]) -> Row:
    return tuple(row[place] if place < len(row) else "" for place in places)


def _alike(one: Row, other: Row) -> int:
    """Return how many cells two rows have in common at their beginning."""
    for count, (first, second) in enumerate(zip(one, other, strict=True)):
        if first != second:
            return count
    return len(one)
