"""Parts of tensors as boxes over two axes: output channels and rows; along all other axes a part is the whole.

A box is (first channel, end, first row, end), half-open. Tensors without one of the axes have one channel or one row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.distribution import Axis
from memsched.graph.model import Graph, Region, Tensor

__all__ = ["EMPTY", "Box", "Extents", "Layout", "extents_of", "hull", "layout_of", "volume"]

Box = tuple[int, int, int, int]
EMPTY: Box = (0, 0, 0, 0)

Layout = Literal["channels first", "channels last"]


class Extents(FrozenValue, frozen=True):
    """A tensor as boxes see it.

    Attributes:
        shape: The tensor's shape; empty where it is unknown.
        channel_axis: Its axis of channels, -1 for none.
        row_axis: Its axis of rows, -1 for none.
        channels: Length of that axis, 1 for none.
        rows: Likewise.
        cell: Bytes of one row of one channel.
    """

    shape: tuple[int, ...]
    channel_axis: int
    row_axis: int
    channels: int
    rows: int
    cell: int

    @property
    def whole(self) -> Box:
        """The box that is all of the tensor."""
        return (0, self.channels, 0, self.rows)

    def axis(self, name: Axis) -> int:
        """Return the tensor's axis of that name, -1 for none."""
        return {"channels": self.channel_axis, "rows": self.row_axis, "whole": -1}[name]

    def slab(self, name: Axis, start: int, stop: int) -> Box:
        """Return the part [start, stop) along an axis; "whole" from 0 to 1 is all of it."""
        if start >= stop:
            return EMPTY
        if name == "channels":
            return (start, stop, 0, self.rows)
        return (0, self.channels, start, stop) if name == "rows" else self.whole

    def region(self, box: Box) -> Region:
        """Return a box as ranges of all axes."""
        ranges = [(0, size) for size in self.shape]
        if self.channel_axis >= 0:
            ranges[self.channel_axis] = box[:2]
        if self.row_axis >= 0:
            ranges[self.row_axis] = box[2:]
        return Region(tuple(ranges))

    def box(self, region: Region) -> Box:
        """Return the smallest box that covers a region."""
        channels = region.ranges[self.channel_axis] if self.channel_axis >= 0 else (0, 1)
        rows = region.ranges[self.row_axis] if self.row_axis >= 0 else (0, 1)
        return (*channels, *rows)

    def size(self, box: Box) -> int:
        """Return the bytes of a box."""
        return volume(box) * self.cell


def layout_of(graph: Graph) -> Layout:
    """Return which axis holds the channels: the last one in TFLite, whose operators have names in capitals."""
    builtin = [op.type for op in graph.ops if "_" in op.type]
    last = bool(builtin) and all(kind == kind.upper() for kind in builtin)
    return "channels last" if last else "channels first"


def extents_of(tensor: Tensor, layout: Layout) -> Extents:
    """Return a tensor's axes.

    One whose rows of a channel are no whole number of bytes (4-bit types) has neither axis: it stays whole.
    """
    shape = tensor.shape or ()
    rank = len(shape)
    if rank < 2 or not tensor.sized or not math.prod(shape):
        return Extents(shape, -1, -1, 1, 1, tensor.size)
    if layout == "channels last":
        channel, row = rank - 1, rank - 3
    else:
        channel, row = 1, 2 if rank > 2 else -1
    row = row if rank > 3 or layout == "channels first" else -1
    channels, rows = shape[channel], shape[row] if row >= 0 else 1
    if tensor.size % (channels * rows):
        return Extents(shape, -1, -1, 1, 1, tensor.size)
    return Extents(shape, channel, row, channels, rows, tensor.size // (channels * rows))


def volume(box: Box) -> int:
    """Return how many rows of one channel a box has."""
    return (box[1] - box[0]) * (box[3] - box[2])


def hull(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around boxes; empty ones do not count."""
    found = [box for box in boxes if volume(box)]
    if not found:
        return EMPTY
    return (
        *(min(box[0] for box in found), max(box[1] for box in found)),
        *(min(box[2] for box in found), max(box[3] for box in found)),
    )  # fmt: skip
