"""Plans of on-chip memory as reports have them."""

from __future__ import annotations

from memsched.codegen.onchip.model import OnChipBuffer, OnChipGroup, OnChipPlan
from memsched.report.values.rewrites import (
    FlopsSection,
    OnChipBufferRow,
    OnChipGroupRow,
    OnChipSection,
    PiecesSection,
    SecondsSection,
    TrafficSection,
)

__all__ = ["on_chip_section"]


def on_chip_section(plan: OnChipPlan) -> OnChipSection:
    """Return a plan as a report has it: sizes and addresses in bytes, ranges half-open, in elements.

    A piece holds the product of one range per axis of each buffer, laid out as batch, rows, columns, channels; an
    axis that a buffer is not cut on has one range for all pieces.
    """
    return OnChipSection(
        on_chip_bytes=plan.capacity,
        method=plan.method,
        groups=tuple(_on_chip_group(plan, group) for group in plan.groups),
        traffic=TrafficSection(
            before_bytes=plan.before.traffic,
            after_bytes=plan.cost.traffic,
            each_operand_once_bytes=plan.once.traffic,
        ),
        flops=FlopsSection(before=plan.before.flops, after=plan.cost.flops),
        time_seconds=SecondsSection(before=plan.before_seconds, after=plan.seconds),
    )


def _on_chip_group(plan: OnChipPlan, group: OnChipGroup) -> OnChipGroupRow:
    tile = group.tile
    return OnChipGroupRow(
        ops=tuple(plan.names[op] for op in group.ops),
        pieces=PiecesSection(rows=tile.rows, columns=tile.columns, channels=tile.channels),
        weights=tile.weights,
        used_bytes=group.height,
        read_bytes=group.cost.read,
        written_bytes=group.cost.written,
        flops=group.cost.flops,
        time_seconds=group.seconds,
        reason=group.refusal,
        buffers=tuple(map(_on_chip_buffer, group.buffers)),
        addends=tile.addends,
        whole_layers=tile.front,
    )


def _on_chip_buffer(buffer: OnChipBuffer) -> OnChipBufferRow:
    return OnChipBufferRow(
        name=buffer.name,
        kind=buffer.kind,
        address=buffer.offset,
        size=buffer.size,
        first_step=buffer.first,
        last_step=buffer.last,
        rows=buffer.rows,
        columns=buffer.columns,
        channels=buffer.channels,
        rows_kept=buffer.kept,
    )
