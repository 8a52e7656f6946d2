"""What ``memsched allocate`` reports: the summary that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsched.base.units import counted
from memsched.report.text import console_table, print_line
from memsched.report.values.allocate import AllocateReport, PackingSection

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["WITHHELD_ADDRESSES", "print_allocation", "verdict"]

WITHHELD_ADDRESSES = "no addresses were written, as the capacity is exceeded: --keep-best writes the best addresses"
"""What is said if the best addresses exceed the capacity, and nobody asked for them all the same."""


def verdict(report: AllocateReport) -> str:
    """Return one sentence on whether the buffers fit, and what is known if they do not."""
    result = report.result
    capacity, height, bound = result.capacity_bytes, result.height_bytes, result.lower_bound_bytes
    if capacity is None:
        return f"the buffers need {height:,} B"
    if result.fits:
        return f"the buffers fit: {height:,} of {capacity:,} B"
    if bound > capacity:
        return (
            f"the buffers cannot fit: at least {bound:,} B are needed ({result.proof}), "
            f"{bound - capacity:,} more than the capacity of {capacity:,}"
        )
    return (
        f"no addresses were found that fit into {capacity:,} B within the time: the best need {height:,} B, "
        f"and the bound of {bound:,} does not exclude that there are some; give more with --time-limit"
    )


def print_allocation(console: Console, report: AllocateReport, *, report_path: str | None, verbose: bool) -> None:
    """Print what was packed, how high, and what is proven.

    Args:
        report_path: Where the report was written, if anywhere.
        verbose: How the bound was proven, the solver's effort, and all addresses.
    """
    source, result, output = report.input, report.result, report.output
    given = f", {source.given:,} with given addresses" if source.given else ""
    print_line(console, f"{source.path}: {counted(source.buffers, 'buffer')}{given}", style="bold")
    table = console_table("of", "bytes", left=(0,), header=False)
    for label, value in _rows(result):
        table.add_row(label, value)
    console.print(table)
    fits = result.fits
    print_line(console, verdict(report), style=None if fits is None else "green" if fits else "red")
    method = f"found by {result.method} in " if result.height_bytes is not None else ""
    print_line(console, f"{method}{report.seconds:.2f} s")
    if source.carried_columns:
        names = ", ".join(f"'{name}'" for name in source.carried_columns)
        print_line(console, f"note: carried through, without a meaning here: {names}", style="dim")
    if result.interrupted:
        print_line(console, "note: the search was ended early: these are the best addresses found so far", style="dim")
    if verbose:
        print_line(console, f"bound: {result.proof or 'none'}; states: {result.states:,}")
        for buffer in report.buffers or ():
            print_line(console, f"  {buffer.offset_bytes:>14,}  {buffer.size_bytes:>14,}  {buffer.id}")
    if output is None and result.height_bytes is not None:
        print_line(console, WITHHELD_ADDRESSES, style="red")
    if output is not None:
        print_line(console, f"addresses: {output.path}", whole=True)
    if report_path is not None:
        print_line(console, f"report: {report_path}", whole=True)


def _rows(result: PackingSection) -> list[tuple[str, str]]:
    rows = []
    if result.capacity_bytes is not None:
        rows.append(("capacity", f"{result.capacity_bytes:,} B"))
    if result.height_bytes is not None:
        rows.append(("height", f"{result.height_bytes:,} B"))
    rows += [
        ("lower bound", f"{result.lower_bound_bytes:,} B"),
        ("most in use at once", f"{result.max_live_bytes:,} B"),
    ]
    if result.height_bytes is not None:
        rows += [
            ("gap to the bound", f"{result.gap_percent:.2f} %"),
            ("fragmentation", f"{result.fragmentation_percent:.2f} %"),
        ]
    return [*rows, ("status", result.status)]
