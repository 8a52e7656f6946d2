"""Which rows of its input a slice or split takes, from what the readers know of its attributes and small constants."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.graph.model import Op

__all__ = ["first_row", "rows_before"]

_STRIDED_MASKS = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
"""With one of these set, the begins of a STRIDED_SLICE do not belong to the axes of the same numbers."""


def first_row(op: Op, shape: Sequence[int], axis: int) -> int | None:
    """Return the row of ``shape`` along ``axis`` at which a slice without steps begins; None where that is unknown.

    ONNX's Slice has ``starts``, ``axes`` and ``steps``, TFLite's SLICE ``begin``, its STRIDED_SLICE ``begin``,
    ``steps`` and masks. Whether the output is whole rows, its shape tells.
    """
    known = op.attributes
    # SLICE has no steps; where an op has them and they are not known, its rows may be any.
    starts, steps = known.get("begin", known.get("starts")), known.get("steps", () if op.type == "SLICE" else None)
    if not isinstance(starts, tuple) or not isinstance(steps, tuple) or any(step != 1 for step in steps):
        return None
    axes = tuple(range(len(starts))) if "begin" in known else known.get("axes")
    if not isinstance(axes, tuple) or any(known.get(mask, 0) for mask in _STRIDED_MASKS):
        return None
    start = 0
    for stated, begin in zip(axes, starts, strict=False):
        if isinstance(stated, int) and stated % len(shape) == axis:
            if not isinstance(begin, int):
                return None
            start = begin
    mask = op.attributes.get("begin_mask", 0)
    if isinstance(mask, int) and mask >> axis & 1:
        return 0
    return min(max(start + shape[axis] if start < 0 else start, 0), shape[axis])


def rows_before(parts: Sequence[tuple[int, ...] | None], shape: Sequence[int], axis: int) -> list[int | None]:
    """Return per output of a split the row at which it begins; None for all where an output is missing or unknown."""
    rows: list[int | None] = []
    row = 0
    for part in parts:
        if part is None or len(part) != len(shape):
            return [None] * len(parts)
        rows.append(row)
        row += part[axis]
    return rows if row == shape[axis] else [None] * len(parts)
