"""Exact packing under a capacity: finds what is there, and nothing where there is nothing."""

from __future__ import annotations

import random

import pytest

from memsched.allocate.bounds import lower_bound
from memsched.graph.packing import Block, BlockPart, height_of
from memsched.joint.fit import fit
from memsched.search.limits import Limits
from memsched.search.run import Run
from tests.joint.packing_brute_force import least_height


def test_the_example_of_the_memory_model_fits_into_its_bound() -> None:
    blocks = [Block.whole(10, 0, 5), Block.whole(20, 3, 6), Block.whole(5, 3, 4), Block.whole(10, 4, 6)]
    offsets = fit(blocks, 40)
    assert offsets is not None
    assert height_of(blocks, offsets) <= 40
    assert fit(blocks, 39) is None


@pytest.mark.parametrize("seed", range(30))
def test_fits_exactly_where_the_brute_force_does(seed: int) -> None:
    rng = random.Random(seed)
    spans = []
    for _ in range(rng.randint(1, 7)):
        begin = rng.randrange(6)
        spans.append((rng.randint(1, 9), begin, rng.randint(begin, 6)))
    least = least_height(spans, 1000)
    blocks = [Block.whole(size, begin, end + 1) for size, begin, end in spans]
    offsets = fit(blocks, least)
    assert offsets is not None
    assert height_of(blocks, offsets) == least
    assert fit(blocks, least - 1) is None


def test_parts_given_addresses_and_alignments_are_heard() -> None:
    pieces = Block(8, (BlockPart(0, 2, 0, 4), BlockPart(1, 3, 4, 8)), alignment=4)
    given = Block(4, (BlockPart(0, 3, 0, 4),), offset=6)
    free = Block.whole(4, 0, 1, alignment=2)
    offsets = fit([pieces, given, free], 20)
    assert offsets is not None
    low, fixed, other = offsets
    assert fixed == 6
    assert low % 4 == other % 2 == 0
    assert low >= 10 or low + 8 <= 6
    # The free block ends before the second piece begins, so it may lie there.
    assert all(other + 4 <= begin or end <= other for begin, end in ((6, 10), (low, low + 4)))


def test_an_interrupt_ends_it() -> None:
    rng = random.Random(0)
    blocks = [Block.whole(rng.randint(1, 99), begin, begin + rng.randint(1, 40)) for begin in range(200)]
    asked = 0

    def second() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    assert fit(blocks, lower_bound(blocks)[0], run=Run(Limits(None), stop=lambda: True)) is None
    assert fit(blocks, lower_bound(blocks)[0], run=Run(Limits(None), stop=second)) is None
    # Without the interrupt it was asked for as long as the solver ran.
    assert 2 <= asked < 100
