"""How a part of a tensor is assembled from the parts that already exist."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Region

__all__ = ["Cover", "PartConcat", "PartSlice", "cover", "hull", "leaves"]


class PartSlice(FrozenValue, frozen=True):
    """``region`` is cut out of part number ``part``, which holds it."""

    part: int
    region: Region


class PartConcat(FrozenValue, frozen=True):
    """``region`` is its ``children``, one after the other along ``axis``."""

    axis: int
    region: Region
    children: tuple[Cover, ...]


Cover = PartSlice | PartConcat


def cover(region: Region, parts: Sequence[Region]) -> Cover | None:
    """Return how ``region`` is made of ``parts``, which may overlap; None where they leave a gap.

    The part that is the region itself is taken before the first that holds it, one part before several, and several
    along one axis before a grid of them.
    """
    near = [(number, inner) for number, part in enumerate(parts) if (inner := _common(region, part)) is not None]
    exact = [number for number, _ in near if parts[number] == region]
    holding = [number for number, inner in near if inner == region]
    if holding:
        return PartSlice((exact or holding)[0], region)
    for axis in range(len(region.ranges)):
        row = _row(region, axis, near)
        if row is not None:
            return row
    return _grid(region, parts, [inner for _, inner in near])


def hull(regions: Sequence[Region]) -> Region:
    """Return the smallest region that holds all of ``regions``, of which there is one at least."""
    axes = zip(*(region.ranges for region in regions), strict=True)
    return Region(tuple((min(start for start, _ in spans), max(stop for _, stop in spans)) for spans in axes))


def leaves(found: Cover) -> Iterator[PartSlice]:
    """Yield what a cover takes from single parts, in order."""
    pending = [found]
    while pending:
        one = pending.pop()
        if isinstance(one, PartSlice):
            yield one
        else:
            pending.extend(reversed(one.children))


def _common(first: Region, second: Region) -> Region | None:
    ranges = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(first.ranges, second.ranges, strict=True))
    return Region(ranges) if all(start < stop for start, stop in ranges) else None


def _row(region: Region, axis: int, near: Sequence[tuple[int, Region]]) -> PartConcat | None:
    """Lay parts that span the region on all other axes one after the other, as few as will do."""
    start, stop = region.ranges[axis]
    wide = sorted(
        (inner.ranges[axis][0], -inner.ranges[axis][1], number)
        for number, inner in near
        if all(a == b for place, (a, b) in enumerate(zip(inner.ranges, region.ranges, strict=True)) if place != axis)
    )
    children: list[Cover] = []
    at, place = start, 0
    while at < stop:
        best = (at, -1)
        while place < len(wide) and wide[place][0] <= at:
            best = max(best, (-wide[place][1], -wide[place][2]))
            place += 1
        if best[0] <= at:
            return None
        children.append(PartSlice(-best[1], _with_range(region, axis, at, best[0])))
        at = best[0]
    return PartConcat(axis, region, tuple(children))


def _grid(region: Region, parts: Sequence[Region], near: Sequence[Region]) -> PartConcat | None:
    """Cut the region at every edge of a part along the axis with the fewest of them; each slab has none left there."""
    edges = {
        axis: sorted({edge for inner in near for edge in inner.ranges[axis] if start < edge < stop})
        for axis, (start, stop) in enumerate(region.ranges)
    }
    cut = [axis for axis in edges if edges[axis]]
    if not cut:
        return None
    axis = min(cut, key=lambda one: len(edges[one]))
    ends = [region.ranges[axis][0], *edges[axis], region.ranges[axis][1]]
    slabs = [cover(_with_range(region, axis, low, high), parts) for low, high in itertools.pairwise(ends)]
    children = tuple(slab for slab in slabs if slab is not None)
    return PartConcat(axis, region, children) if len(children) == len(slabs) else None


def _with_range(region: Region, axis: int, start: int, stop: int) -> Region:
    ranges = list(region.ranges)
    ranges[axis] = (start, stop)
    return Region(tuple(ranges))
