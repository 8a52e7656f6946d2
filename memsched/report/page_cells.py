"""Many small rectangles drawn as few: the cells of a grid that they touch, neighbours in a row joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from memsched.base.frozen import FrozenValue

__all__ = ["Rectangle", "merged_cells"]

_COLUMNS = 300
_ROWS = 90


class Rectangle(FrozenValue, frozen=True):
    """A rectangle of steps and addresses: ``left`` and ``bottom`` belong to it, ``right`` and ``top`` do not."""

    left: int
    right: int
    bottom: int
    top: int


def merged_cells(extents: Sequence[Rectangle], steps: int) -> Iterator[Rectangle]:
    """Yield cells that cover all of ``extents`` and little else, from left to right and row by row.

    Linear in their number: each changes four corners of a grid, whose sums are how many lie over each cell.
    """
    if not extents:
        return
    height = max(extent.top for extent in extents)
    columns, rows = min(_COLUMNS, steps), min(_ROWS, height)
    corners = [[0] * (columns + 1) for _ in range(rows + 1)]
    for extent in extents:
        left, right = extent.left * columns // steps, (extent.right - 1) * columns // steps + 1
        bottom, top = extent.bottom * rows // height, (extent.top - 1) * rows // height + 1
        corners[bottom][left] += 1
        corners[bottom][right] -= 1
        corners[top][left] -= 1
        corners[top][right] += 1
    above = [0] * (columns + 1)
    for row in range(rows):
        above = [before + now for before, now in zip(above, corners[row], strict=True)]
        covered = list(accumulate(above))
        # From the first address in the row of cells to the first in the next one, likewise for steps.
        bottom, top = -(-row * height // rows), -(-(row + 1) * height // rows)
        left = 0
        while left < columns:
            right = left
            while right < columns and covered[right]:
                right += 1
            if right > left:
                yield Rectangle(-(-left * steps // columns), -(-right * steps // columns), bottom, top)
            left = right + 1
