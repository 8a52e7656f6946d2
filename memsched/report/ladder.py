"""The table of results that memsched tried for a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memsched.base.units import format_size
from memsched.report.text import console_table, print_line
from memsched.report.values.ladder import LadderRow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_ladder"]

_NAMES: Final = {"file": "one file", "stages": "files in one arena", "c": "C, no interpreter"}
_MOST: Final = 60
"""Maximum length of a reason in characters."""


def print_ladder(console: Console, rows: Sequence[LadderRow]) -> None:
    """Print memory, time, flash, and changes of each result. Print no table for a single result."""
    if len(rows) < 2:
        return
    console.print()
    table = console_table("tried", "bytes", "time", "flash", "fits", "changes", left={0, 4, 5})
    for row in rows:
        if row.bytes is not None:
            table.add_row(*_cells(row), style="green" if row.written else None)
    console.print(table)
    for row in rows:
        if row.bytes is None:
            reason = row.reason if len(row.reason) <= _MOST else f"{row.reason[: _MOST - 3]}..."
            print_line(console, f"{_NAMES[row.what]}: {reason}", style="dim")


def _cells(row: LadderRow) -> tuple[str, ...]:
    return (
        _NAMES[row.what],
        f"{row.bytes:,}",
        "" if row.time_ratio is None else f"{row.time_ratio:.2f}x",
        "" if row.flash_bytes is None else format_size(row.flash_bytes),
        "written" if row.written else "yes" if row.fits else "no",
        ", ".join(row.changes) or "none",
    )
