"""What the exact search is given: sections, units, roundings and twins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memsched.graph.packing import Block, BlockPart
from memsched.solve.allocate import preprocess
from memsched.solve.allocate.preprocess import common_grid, common_unit, is_uniform, live_sections, problem_of


def test_sections_within_a_neighbour_are_dropped() -> None:
    blocks = [Block.whole(1, 0, 10), Block.whole(1, 2, 4), Block.whole(1, 3, 8), Block.whole(1, 9, 10)]
    assert live_sections(blocks) == [0b0111, 0b1001]


def test_a_gap_in_a_lifetime_is_kept() -> None:
    gapped = Block(1, (BlockPart(0, 2, 0, 1), BlockPart(5, 7, 0, 1)))
    assert live_sections([gapped, Block.whole(1, 1, 6), Block.whole(1, 3, 4)]) == [0b011, 0b110, 0b011]
    touching = Block(1, (BlockPart(0, 2, 0, 1), BlockPart(2, 7, 0, 1)))
    assert live_sections([touching]) == [0b1]


@pytest.mark.parametrize(
    ("sizes", "alignments", "unit"),
    [((64, 96), (1, 1), 32), ((64, 96), (16, 1), 32), ((64, 96), (48, 1), 16), ((48, 96), (24, 32), 8)],
)
def test_the_unit_divides_every_address_that_a_pushed_down_block_can_have(
    sizes: tuple[int, ...], alignments: tuple[int, ...], unit: int
) -> None:
    blocks = [Block.whole(size, 0, 1, alignment) for size, alignment in zip(sizes, alignments, strict=True)]
    assert common_unit(blocks) == unit


def test_widths_are_rounded_where_all_alignments_are_one() -> None:
    blocks = [Block.whole(10, 0, 2, 8), Block.whole(8, 1, 3, 8)]
    problem = problem_of(blocks)
    assert problem is not None
    assert (problem.unit, problem.widths, problem.above) == (2, (8, 4), (-3, 0))
    assert problem.slack == (3,)
    assert common_grid([*blocks, Block.whole(8, 0, 1, 4)]) == 1


def test_twins_are_free_blocks_of_the_same_sections_size_and_alignment() -> None:
    block = Block.whole(4, 0, 3)
    blocks = [block, block, replace(block, offset=8), Block.whole(2, 0, 3), Block.whole(4, 0, 3, 2), block]
    problem = problem_of(blocks)
    assert problem is not None
    assert problem.twins == ((1, 5), (0, 5), (), (), (), (0, 1))


def test_only_blocks_that_use_the_same_bytes_all_the_time_are_uniform() -> None:
    assert is_uniform(Block(8, (BlockPart(0, 1, 2, 4), BlockPart(3, 5, 2, 4))))
    assert not is_uniform(Block(8, (BlockPart(0, 1, 2, 4), BlockPart(3, 5, 2, 5))))
    assert not is_uniform(Block(8, ()))


def test_what_is_too_large_is_not_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "MOST_MEETINGS", 5)
    assert problem_of([Block.whole(1, 0, 3)] * 2) is not None
    assert problem_of([Block.whole(1, 0, 3)] * 6) is None
