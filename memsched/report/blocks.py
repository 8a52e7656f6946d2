"""Lines on loops over blocks of dimensions that stay open."""

from __future__ import annotations

from memsched.report.values.blocks import BlocksSection, SizeRow
from memsched.units import counted, format_size

__all__ = ["block_lines"]

Line = tuple[str, str | None]


def block_lines(section: BlocksSection | None) -> list[Line]:
    """Return what loops there are, and what both files took at the sizes that were measured."""
    if section is None or section.way is None:
        return []
    dimensions = ", ".join(
        f"{row.dimension} = {row.least:,} to {row.most:,}" if row.most is not None else f"any {row.dimension}"
        for row in section.ranges
    )
    lines: list[Line] = [
        (f"{counted(len(section.loops), 'loop')} over blocks, for {dimensions}; other lengths are refused", None)
    ]
    lines.extend((_measured(row), "green") for row in section.measured)
    lines.append((f"outputs compared at {counted(len(section.compared), 'size')}, primes among them", None))
    return lines


def _measured(row: SizeRow) -> str:
    at = ", ".join(f"{name} = {size:,}" for name, size in row.sizes.items())
    before = format_size(row.given_process_bytes)
    if row.process_bytes is None or row.seconds is None:
        return f"the process at {at}: {before}"
    ratio = row.seconds / max(row.given_seconds, 1e-9)
    after = format_size(row.process_bytes)
    return f"the process at {at}, in a session without options: {before} -> {after} at {ratio:.2f} x the time"
