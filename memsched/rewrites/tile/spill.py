"""Pieces of ops that pad by the size of their input (SAME): they run on a cut input and are wrong at the cut edges.

SAME adds total = max((ceil(length / stride) - 1) * stride + reach - length, 0) elements, half of them (rounded down)
before. A piece's windows must fall on those of the whole, so its input begins where that half makes them fall.
"""

from __future__ import annotations

from memsched.graph.model import Region
from memsched.ops.rules import Geometry, Window

__all__ = ["spilled"]

_Range = tuple[int, int]


def spilled(geometry: Geometry, wanted: Region, read: Region) -> tuple[Region, Region] | None:
    """Return (input region, computed region) of a piece whose right elements hold ``wanted``; None if there is none.

    Args:
        wanted: The part of the output that is asked for.
        read: What of the first input that part depends on.
    """
    reads, computed = list(read.ranges), list(wanted.ranges)
    for axis, one in enumerate(geometry.operands[0]):
        if not isinstance(one.rule, Window):
            continue
        found = _along(
            one.rule, geometry.shapes[0][axis], geometry.shape[one.output], wanted.ranges[one.output], reads[axis]
        )
        if found is None:
            return None
        reads[axis], computed[one.output] = found
    return Region(tuple(reads)), Region(tuple(computed))


def _along(rule: Window, length: int, outputs: int, wanted: _Range, read: _Range) -> tuple[_Range, _Range] | None:
    """Return the shortest input range, and the outputs it gives, for one axis."""
    reach = (rule.kernel - 1) * rule.dilation + 1
    slack = rule.stride + reach
    best: tuple[tuple[int, int], _Range, _Range] | None = None
    for first in range(read[0], max(-1, read[0] - slack - 1), -1):
        for last in range(read[1], min(length, read[1] + slack) + 1):
            computed = _computed(rule, reach, (first, last), length, outputs)
            if computed is None:
                continue
            (begin, end), (good_begin, good_end) = computed
            cost = (last - first, end - begin)
            if good_begin <= wanted[0] and wanted[1] <= good_end and (best is None or cost < best[0]):
                best = cost, (first, last), (begin, end)
    return None if best is None else best[1:]


def _computed(rule: Window, reach: int, read: _Range, length: int, outputs: int) -> tuple[_Range, _Range] | None:
    """Return which outputs an input range gives and which of them are right; None where windows do not coincide."""
    size = read[1] - read[0]
    count = -(-size // rule.stride)
    before = max((count - 1) * rule.stride + reach - size, 0) // 2
    offset = read[0] - before + rule.pad_before
    if offset % rule.stride or offset < 0 or offset // rule.stride + count > outputs:
        return None
    begin = offset // rule.stride
    good = [
        output
        for output in range(begin, begin + count)
        if _inside(output * rule.stride - rule.pad_before, reach, read, length)
    ]
    return ((begin, begin + count), (good[0], good[-1] + 1)) if good else None


def _inside(start: int, reach: int, read: _Range, length: int) -> bool:
    """Whether a window sees nothing but padding outside of ``read``."""
    return max(start, 0) >= read[0] and min(start + reach, length) <= read[1]
