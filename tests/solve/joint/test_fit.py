"""Exact packing under a capacity: finds what is there, and nothing where there is nothing."""

from __future__ import annotations

import random

import pytest

from memsched.graph.packing import Block, BlockPart, height_of
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate.bounds import lower_bound
from memsched.solve.joint.fit import fit
from tests.solve.joint.packing_brute_force import least_height


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


def _cut_up(count: int, rng: random.Random) -> list[Block]:
    """Cut a rectangle of 1,000 steps and 100,000 bytes into ``count`` blocks, which leave no gap when put together."""
    pieces = [(0, 1_000, 0, 100_000)]
    while len(pieces) < count:
        begin, end, low, high = pieces.pop(rng.randrange(len(pieces)))
        if rng.random() < 0.5 and end - begin > 1:
            at = rng.randint(begin + 1, end - 1)
            pieces += [(begin, at, low, high), (at, end, low, high)]
        elif high - low > 1:
            at = rng.randint(low + 1, high - 1)
            pieces += [(begin, end, low, at), (begin, end, at, high)]
        else:
            pieces.append((begin, end, low, high))
    return [Block.whole(high - low, begin, end) for begin, end, low, high in pieces]


def test_an_interrupt_ends_it() -> None:
    # No machine puts these together in the time between two looks at the interrupt: a minute is not enough.
    blocks = _cut_up(1_000, random.Random(0))
    asked = 0

    def second() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    assert fit(blocks, lower_bound(blocks)[0], run=Run(Limits(None), stop=lambda: True)) is None
    assert fit(blocks, lower_bound(blocks)[0], run=Run(Limits(None), stop=second)) is None
    # Without the interrupt it was asked for as long as the solver ran.
    assert 2 <= asked < 100
