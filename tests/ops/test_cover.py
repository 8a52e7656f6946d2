"""Parts of tensors put together: against the elements themselves."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.graph.model import Region
from memsched.ops.cover import PartConcat, PartSlice, cover, hull, leaves


def region(*ranges: tuple[int, int]) -> Region:
    return Region(ranges)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Region, list[Region]]:
    """A region, and parts: random ones, or a grid of which some are missing or larger than need be."""
    rank = draw(st.integers(0, 3))

    def one() -> Region:
        starts = [draw(st.integers(0, 4)) for _ in range(rank)]
        return Region(tuple((start, start + draw(st.integers(1, 4))) for start in starts))

    wanted = one()
    parts = [one() for _ in range(draw(st.integers(0, 3)))]
    if draw(st.booleans()):
        cuts = [sorted({low, *draw(st.sets(st.integers(low, high), max_size=2)), high}) for low, high in wanted.ranges]
        cells = [Region(())]
        for edges in cuts:
            cells = [Region((*cell.ranges, span)) for cell in cells for span in itertools.pairwise(edges)]
        parts += [cell for cell in cells if draw(st.integers(0, 9))]
    return wanted, draw(st.permutations(parts))


def index(one: Region) -> tuple[slice, ...]:
    return tuple(slice(*span) for span in one.ranges)


@given(cases())
@settings(max_examples=300)
def test_a_cover_takes_every_element_once_from_a_part_that_has_it(case: tuple[Region, list[Region]]) -> None:
    wanted, parts = case
    found = cover(wanted, parts)
    there = np.zeros((9,) * len(wanted.ranges), bool)
    for part in parts:
        there[index(part)] = True
    assert (found is not None) == there[index(wanted)].all()
    if found is None:
        return
    taken = np.zeros(there.shape, int)
    for leaf in leaves(found):
        taken[index(leaf.region)] += 1
        assert hull([leaf.region, parts[leaf.part]]) == parts[leaf.part]
    assert (taken[index(wanted)] == 1).all()
    assert taken.sum() == taken[index(wanted)].size


def test_one_part_before_several_and_the_very_region_before_larger_ones() -> None:
    parts = [region((0, 4)), region((4, 8)), region((0, 9)), region((2, 6))]
    assert cover(region((2, 6)), parts) == PartSlice(3, region((2, 6)))
    assert cover(region((1, 7)), parts) == PartSlice(2, region((1, 7)))


def test_as_few_parts_as_will_do_along_an_axis() -> None:
    parts = [region((0, 2), (0, 3)), region((1, 5), (0, 3)), region((2, 3), (0, 3)), region((3, 8), (0, 3))]
    found = cover(region((0, 8), (0, 3)), parts)
    assert isinstance(found, PartConcat)
    assert [leaf.part for leaf in leaves(found)] == [0, 1, 3]


def test_a_gap_is_no_cover() -> None:
    assert cover(region((0, 4), (0, 4)), [region((0, 4), (0, 2)), region((0, 3), (2, 4))]) is None
    assert cover(region((0, 4)), []) is None
