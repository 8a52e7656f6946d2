"""What a firmware must bring for a model, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted
from memsched.report.text import print_line
from memsched.report.values.optimize import OptimizeReport

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_firmware"]


def print_firmware(console: Console, report: OptimizeReport) -> None:
    """Print the section ``firmware``, which models of TFLite alone have."""
    section = report.sections.firmware
    if section is None:
        return
    tail, room = section.persistent_bytes_estimate, section.planning_bytes_estimate
    calls = section.resolver_calls
    lines = [
        "a firmware with TensorFlow Lite Micro needs:",
        f"  beside the tensors, kept:  about {tail.bits_32:,} B on 32 bit, {tail.bits_64:,} B on 64 bit",
        f"  while it plans, at least:  about {room.bits_32:,} B on 32 bit, {room.bits_64:,} B on 64 bit",
        f"  resolver size {len(calls)}: {', '.join(calls)}",
    ]
    if section.resource_variables:
        lines.append(f"  MicroResourceVariables of {section.resource_variables}, from the interpreter's allocator")
    if section.unsupported_operators:
        lines.append(f"  TensorFlow Lite Micro does not have: {', '.join(section.unsupported_operators)}")
    if section.kept:
        top = sorted(section.kept, key=lambda row: (-row.bytes, row.subgraph, row.operator))[:ROWS_SHOWN]
        shown = ", ".join(f"operator {row.operator} ({row.type}) {row.bytes:,} B" for row in top)
        lines.append(f"  most is kept for: {shown}")
    if section.scratch:
        largest = max(section.scratch, key=lambda entry: sum(entry.requests_bytes))
        lines.append(
            f"  scratch buffers for {counted(len(section.scratch), 'operator')}, the most for operator "
            f"{largest.operator} ({largest.type}): {sum(largest.requests_bytes):,} B"
        )
    lines += [f"  holds for: {assumption}" for assumption in section.assumptions]
    for line in lines:
        print_line(console, line)
