"""Lines on loops over blocks of dimensions that stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsched.base.units import counted, format_size
from memsched.report.text import console_table
from memsched.report.values.blocks import (
    BlocksSection,
    CurveRow,
    CurveSection,
    OrderSpanRow,
    RangeOrdersSection,
    RangeRow,
    SizeRow,
)

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["best_saving", "block_lines", "curve_answer", "curve_cells", "grows_most", "print_curve", "told_sizes"]

Line = tuple[str, str | None]

_INCLUDED = "the runtime's library included"
"""What tells a process over a range from that of a session alone."""


def block_lines(section: BlocksSection | None) -> list[Line]:
    """Return what loops there are, what both files took at the sizes that were measured, and which order it is."""
    if section is None:
        return []
    return [*_loop_lines(section), *_order_lines(section.orders)]


def _loop_lines(section: BlocksSection) -> list[Line]:
    if section.way is None:
        written = [_measured(row) for row in section.measured if row.process_bytes is not None]
        return [(told, None) for told in written[:1]]
    dimensions = ", ".join(map(_range, section.ranges))
    made = [f"{counted(len(section.kernels), 'kernel')} for attention"] if section.kernels else []
    made += [f"{counted(len(section.loops), 'loop')} over blocks"] if section.loops else []
    made = made or ["room in the runtime's arena before all else"]
    lines: list[Line] = [(f"{' and '.join(made)}, for {dimensions}; other lengths are refused", None)]
    lines.extend((_measured(row), "green") for row in section.measured)
    lines.append((f"outputs compared at {counted(len(section.compared), 'size')}, primes among them", None))
    return lines


def _order_lines(section: RangeOrdersSection | None) -> list[Line]:
    """Return what the order that was chosen requests, and where another one is better."""
    if section is None or len(section.orders) == 1:
        return []
    rows = (section.least, section.typical, section.worst)
    peaks = ", ".join(f"{format_size(row.bytes)} at {told_sizes(row.sizes)}" for row in rows)
    lines: list[Line] = [(f"activations in {_order(section, section.chosen)}: {peaks}", None)]
    if section.chosen:
        peaks = ", ".join(format_size(row.given_bytes) for row in rows)
        lines.append((f"activations in {_order(section, 0)}: {peaks}", None))
    for line in section.spans:
        if any(span.loss_percent for span in line):
            told = "; ".join(_span(section, span) for span in line)
            lines.append((f"no order is best at every size: {told}", None))
    return lines


def best_saving(section: RangeOrdersSection) -> str:
    """Return where the order that is written saves most, and how much."""
    best = max(section.judged, key=lambda row: row.given_bytes - row.bytes)
    saved = best.given_bytes - best.bytes
    percent = f"{100 * saved / max(1, best.given_bytes):.1f} %"
    less = f"{percent} less than the file's order at {told_sizes(best.sizes)}"
    return f"saves up to {format_size(saved)} of activations, {less}"


def _order(section: RangeOrdersSection, index: int) -> str:
    found_at = section.orders[index].found_at
    return "the file's order" if found_at is None else f"the order found at {told_sizes(found_at)}"


def _span(section: RangeOrdersSection, span: OrderSpanRow) -> str:
    """Return the sizes of a span, which order is best there, and what another one that was chosen loses."""
    told = [
        f"{name} = {least:,}" + (f" to {span.last[name]:,}" if span.last[name] != least else "")
        for name, least in span.first.items()
    ]
    loss = f" (the chosen one takes up to {span.loss_percent:g} % more)" if span.loss_percent else ""
    return f"{', '.join(told)}: {_order(section, span.order)}{loss}"


def _range(row: RangeRow) -> str:
    steps = f" by {row.multiple:,}" if row.multiple > 1 else ""
    return f"{row.dimension} = {row.least:,} to {row.most:,}{steps}" if row.most is not None else f"any {row.dimension}"


def _measured(row: SizeRow) -> str:
    at = told_sizes(row.sizes)
    before = format_size(row.given_process_bytes)
    growing = "" if row.settled else ", still growing when time ended the runs"
    if row.process_bytes is None or row.time_ratio is None:
        return f"the process at {at}, {_INCLUDED}: {before}{growing}"
    after = format_size(row.process_bytes)
    where = f"the process at {at}, in a session without options, {_INCLUDED}"
    return f"{where}: {before} -> {after} at {row.time_ratio:.2f} x the time{growing}"


def curve_answer(section: CurveSection, budget: int | None) -> Line:
    """Return the largest size that fits, and whether that is the whole range, in a line."""
    if budget is None:
        return f"memory from {told_sizes(section.rows[0].sizes)} to {told_sizes(section.rows[-1].sizes)}", None
    if section.largest_sizes is None:
        return f"not even {told_sizes(section.rows[0].sizes)} fits in {format_size(budget)}", "red"
    told = f"fits up to {told_sizes(section.largest_sizes)} in {format_size(budget)}"
    if section.largest_sizes == section.rows[-1].sizes:
        return f"{told}, the whole range", "green"
    return f"{told}, not over the whole range", "red"


def print_curve(console: Console, section: CurveSection, budget: int | None) -> None:
    """Print the answer, memory against size, and what grows."""
    from rich.text import Text

    text, style = curve_answer(section, budget)
    console.print(Text(text, style=style or ""))
    table = console_table("size", "activations, bytes", "process, bytes", "", left=(0, 3))
    for row in section.rows:
        table.add_row(
            *curve_cells(row), style="green" if row.sizes == section.largest_sizes and budget is not None else None
        )
    console.print(table)
    if any(row.process_bytes is not None for row in section.rows):
        console.print(Text(f"the process: {_INCLUDED}"), soft_wrap=True)
    console.print("bytes that grow most, one tensor of each size, at the largest:")
    for one in section.growth:
        console.print(Text(f"  {one.size_bytes:>15,}  {one.tensor}: {one.expression}"), soft_wrap=True)


def grows_most(section: CurveSection) -> str:
    """Return the dimension of a curve that grows most."""
    ends = section.rows[0].sizes, section.rows[-1].sizes
    return max(ends[1], key=lambda name: ends[1][name] / max(ends[0][name], 1))


def curve_cells(row: CurveRow) -> tuple[str, str, str, str]:
    """Return a size, the bytes of activations and of the process there, and whether these were measured."""
    process = "" if row.process_bytes is None else f"{row.process_bytes:,}"
    measured = "measured" if row.settled else "measured, still growing"
    return told_sizes(row.sizes), f"{row.requested_bytes:,}", process, "" if row.measured_bytes is None else measured


def told_sizes(sizes: dict[str, int]) -> str:
    """Return the lengths of dimensions in words."""
    return ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
