"""The checker of packings accepts exactly what holds: against cells of time and byte, and one corruption at a time."""

from __future__ import annotations

import ast
import random
from dataclasses import replace
from pathlib import Path

import pytest

from memsched.check import packing as packing_checker
from memsched.check.packing import check_packing
from memsched.graph.packing import Block, BlockPart, Packing, height_of
from tests.failures import fails
from tests.solve.allocate.packings import is_valid

BLOCKS = (
    Block.whole(8, 0, 2, 4),
    Block(6, (BlockPart(0, 1, 0, 2), BlockPart(2, 4, 0, 6)), 2),
    replace(Block.whole(4, 1, 3), offset=8),
)
GOOD = Packing((0, 12, 8), 18, 12, "feasible", "", "by hand")


def test_the_hand_made_example_holds() -> None:
    check_packing(BLOCKS, GOOD)
    check_packing(BLOCKS, GOOD, 18)
    check_packing((), Packing((), 0, 0, "optimal", "", ""))
    check_packing(BLOCKS, Packing((), 0, 19, "infeasible", "", ""), 18)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (replace(GOOD, offsets=(0, 12)), ("address-count", "2", "3")),
        (replace(GOOD, offsets=(2, 12, 8)), ("misaligned", "block 0", "2")),
        (replace(GOOD, offsets=(-4, 12, 8)), ("misaligned", "block 0", "-4")),
        (replace(GOOD, offsets=(0, 12, 20), height=24), ("given-address", "8")),
        (replace(GOOD, height=17), ("height-claim", "17")),
        (replace(GOOD, lower_bound=19), ("bound",)),
        (replace(GOOD, status="optimal"), ("bound",)),
        (replace(GOOD, offsets=(0, 8, 8), height=14), ("overlap", "at 8", "time 2")),
        (replace(GOOD, offsets=(0, 6, 8), height=12), ("overlap", "0 and 1", "at 6")),
        (Packing((), 0, 18, "infeasible", "", ""), ("misfit-claim",)),
        (Packing((0,), 0, 19, "infeasible", "", ""), ("misfit-claim",)),
    ],
)
def test_every_corruption_is_rejected(bad: Packing, expected: tuple[str, ...]) -> None:
    with fails(*expected):
        check_packing(BLOCKS, bad, 18)


def test_what_blocks_and_packings_are_where_nothing_is_said() -> None:
    assert (
        Block.whole(8, 0, 2) == Block(8, (BlockPart(0, 2, 0, 8),)) == Block(8, (BlockPart(0, 2, 0, 8),), 1, None, None)
    )
    assert Packing((), 0, 0, "optimal", "", "") == Packing((), 0, 0, "optimal", "", "", 0, 0.0)


def test_a_height_needs_an_address_for_every_block() -> None:
    assert (height_of(BLOCKS, GOOD.offsets), height_of((), ())) == (18, 0)
    with pytest.raises(ValueError, match="zip"):
        height_of(BLOCKS, (0, 12))


def test_what_does_not_fit_is_rejected() -> None:
    with fails("too-high", "17"):
        check_packing(BLOCKS, GOOD, 17)
    with fails("misfit-claim"):
        check_packing(BLOCKS, Packing((), 0, 19, "infeasible", "", ""))
    with fails("part-outside", "block 0"):
        check_packing([Block(4, (BlockPart(0, 1, 2, 5),))], Packing((0,), 4, 0, "feasible", "", ""))


def test_overlaps_are_found_exactly_where_cells_meet() -> None:
    rng = random.Random(9)
    overlaps = 0
    for _ in range(2000):
        blocks = []
        for _ in range(rng.randint(1, 4)):
            parts = []
            for _ in range(rng.choice([1, 1, 2, 3])):
                begin, low = rng.randint(0, 4), rng.randint(0, 4)
                parts.append(BlockPart(begin, begin + rng.randint(0, 3), low, low + rng.randint(0, 3)))
            blocks.append(Block(7, tuple(parts)))
        offsets = tuple([rng.randint(0, 14) for _ in blocks])
        packing = Packing(offsets, height_of(blocks, offsets), 0, "feasible", "", "")
        if is_valid(blocks, offsets):
            check_packing(blocks, packing)
        else:
            overlaps += 1
            with fails("overlap"):
                check_packing(blocks, packing)
    assert 200 < overlaps < 1800


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    tree = ast.parse(Path(packing_checker.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {module for module in imported if module and module.startswith("memsched")}
    assert own == {"memsched.base.errors", "memsched.graph.packing"}


def test_parts_are_checked_one_by_one() -> None:
    good, bad = BlockPart(0, 1, 0, 4), BlockPart(2, 3, 2, 5)
    with fails("part-outside", "block 0"):
        check_packing([Block(4, (good, bad))], Packing((0,), 4, 0, "feasible", "", ""))
    with fails("part-outside", "block 0"):
        check_packing([Block(-1, ())], Packing((0,), 0, 0, "feasible", "", ""))
    check_packing([Block(0, (BlockPart(0, 1, 0, 0),))], Packing((0,), 0, 0, "feasible", "", ""))
