"""Packings of any blocks: valid, no lower than the bound, as low as possible where that is claimed, repeatable."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.base.errors import UsageError
from memsched.check.packing import check_packing
from memsched.graph.packing import Block, BlockPart, Packing, height_of
from memsched.search.limits import QUICK, Limits
from memsched.search.pace import MachinePace
from memsched.search.progress import Progress
from memsched.search.run import Run
from memsched.solve.allocate import greedy, local
from memsched.solve.allocate.bounds import live_bound, lower_bound
from memsched.solve.allocate.components import components
from memsched.solve.allocate.conflicts import conflicts_of, overlapping_pairs, without_overlaps
from memsched.solve.allocate.greedy import GreedyPlanner
from memsched.solve.allocate.portfolio import pack
from scripts.bench.allocate import generate
from tests.failures import fails
from tests.solve.allocate.packings import any_blocks, cells, is_valid, least_height, tiny_blocks

LIMITS = Limits(time_limit=None, rounds=3)


@settings(max_examples=200, deadline=None)
@given(any_blocks())
def test_packings_of_any_blocks_are_valid(blocks: list[Block]) -> None:
    found = pack(blocks, None)
    check_packing(blocks, found)
    assert is_valid(blocks, found.offsets)
    assert found == replace(pack(blocks, None), seconds=found.seconds)


@settings(max_examples=100, deadline=None)
@given(any_blocks(), st.data())
def test_given_addresses_are_kept_and_hints_followed_where_they_fit(blocks: list[Block], data: st.DataObject) -> None:
    known = pack(blocks, None).offsets
    fixed = data.draw(st.sets(st.integers(0, max(len(blocks) - 1, 0)), max_size=len(blocks)))
    given_some = [replace(block, offset=known[i]) if i in fixed else block for i, block in enumerate(blocks)]
    check_packing(given_some, pack(given_some, None))
    hinted = [replace(block, hint=offset) for block, offset in zip(blocks, known, strict=True)]
    assert pack(hinted, None).height <= height_of(blocks, known)
    assert GreedyPlanner(without_overlaps(hinted)).run(height_of(blocks, known))[1] == list(known)


@settings(max_examples=150, deadline=None)
@given(tiny_blocks())
def test_small_packings_against_all_addresses(blocks: list[Block]) -> None:
    least = least_height(blocks)
    found = pack(blocks, Run(LIMITS))
    check_packing(blocks, found)
    assert found.lower_bound <= least <= found.height
    assert lower_bound(without_overlaps(blocks))[0] <= least
    if found.status == "optimal":
        assert found.height == least
    if least:
        within = pack(blocks, Run(LIMITS), capacity=least - 1, minimize=False)
        assert within.status == "infeasible" or within.height >= least
        if within.status == "infeasible":
            check_packing(blocks, within, least - 1)


def test_what_packing_takes_is_counted() -> None:
    rng = random.Random(3)
    spans = [(begin, begin + rng.randrange(2, 30)) for begin in range(200)]
    blocks = [Block.whole(rng.randrange(1, 90), *span) for span in spans]
    run = Run(QUICK)
    packing = pack(blocks, run)
    steps = packing.states * GreedyPlanner(without_overlaps(blocks)).order_steps
    assert packing.status != "optimal"
    assert run.meter.done >= steps / MachinePace.PACKING_STEPS


@settings(max_examples=300, deadline=None)
@given(any_blocks())
def test_every_planner_alone_is_valid(blocks: list[Block]) -> None:
    planner = GreedyPlanner(without_overlaps(blocks))
    planner.run(-1)
    for height, offsets, _ in planner.found:
        assert is_valid(blocks, offsets)
        assert height == height_of(blocks, offsets)
    height, offsets, _ = local.improve(planner, 0, seed=1, effort=3000)
    assert is_valid(blocks, offsets)
    assert height == height_of(blocks, offsets) <= min(found[0] for found in planner.found)


@settings(max_examples=80, deadline=None)
@given(any_blocks(most=8))
def test_conflicts_are_the_distances_at_which_cells_meet(blocks: list[Block]) -> None:
    clean = without_overlaps(blocks)
    assert [cells(block, 0) for block in clean] == [cells(block, 0) for block in blocks]
    for block in clean:
        assert sum((p.end - p.begin) * (p.high - p.low) for p in block.parts) == len(cells(block, 0))
    conflicts = conflicts_of(clean)
    pairs = 0
    for i, mine in enumerate(clean):
        near = [(other, -mine.size, clean[other].size) for other in conflicts.near[i]]
        for j, other in enumerate(clean):
            forbidden = [(low, high) for k, low, high in [*near, *conflicts.apart[i]] if k == j]
            pairs += len(forbidden)
            assert (j in conflicts.neighbours(i)) == bool(forbidden)
            for distance in range(-21, 22) if i != j else ():
                meets = bool(cells(mine, 30 + distance) & cells(other, 30))
                assert meets == any(low < distance < high for low, high in forbidden)
    assert pairs // 2 <= overlapping_pairs(clean)


@settings(max_examples=200, deadline=None)
@given(any_blocks())
def test_components_packed_apart_are_valid_together(blocks: list[Block]) -> None:
    clean = without_overlaps(blocks)
    found, bottom = components(clean)
    members = [index for component in found for index in component.members]
    assert sorted([*members, *bottom]) == list(range(len(blocks)))
    offsets = [bottom.get(index, 0) for index in range(len(blocks))]
    for component in found:
        own = [clean[index] for index in component.members]
        for index, offset in zip(component.members, pack(own, None).offsets, strict=True):
            offsets[index] = component.base + offset
    assert is_valid(blocks, offsets)


@settings(max_examples=100, deadline=None)
@given(tiny_blocks())
def test_components_keep_the_least_height(any_parts: list[Block]) -> None:
    blocks = without_overlaps(any_parts)
    found, bottom = components(blocks)
    heights = [part.base + least_height([blocks[index] for index in part.members]) for part in found]
    ends = [offset + blocks[index].size for index, offset in bottom.items()]
    assert max([*heights, *ends]) == least_height(blocks)


def test_the_live_bound_rounds_what_alignment_wastes() -> None:
    assert live_bound([Block.whole(5, 0, 2, 4), Block.whole(6, 1, 3, 4)]) == 13
    assert live_bound([Block.whole(5, 0, 1, 4)]) == 5
    assert live_bound([Block.whole(5, 0, 1, 4), Block.whole(8, 0, 1, 8)]) == 13
    assert live_bound([Block.whole(5, 0, 1, 4), replace(Block.whole(8, 0, 1, 8), offset=8)]) == 13
    ragged = Block(8, (BlockPart(0, 2, 0, 3), BlockPart(0, 2, 3, 8)), 4)
    assert live_bound([ragged, Block.whole(4, 0, 2, 4)]) == 12
    assert lower_bound([replace(Block.whole(4, 0, 1), offset=20)]) == (24, "the end of one block")
    assert lower_bound([]) == (0, "bytes in use at once")


def test_a_capacity_that_nothing_fits_into_is_infeasible() -> None:
    blocks = [Block.whole(5, 0, 2), Block.whole(6, 1, 3)]
    found = pack(blocks, Run(LIMITS), capacity=10)
    assert (found.status, found.offsets, found.lower_bound) == ("infeasible", (), 11)
    check_packing(blocks, found, 10)
    assert pack(blocks, Run(LIMITS), capacity=11, minimize=False).height == 11


def test_a_packing_that_fits_ends_the_search() -> None:
    rng = random.Random(3)
    blocks = [Block.whole(rng.randint(1, 50), b := rng.randint(0, 30), b + rng.randint(1, 10)) for _ in range(60)]
    first = pack(blocks, Run(LIMITS), capacity=10**6, minimize=False)
    assert (first.method, first.states) == ("greedy by size", 1)
    told: list[Progress] = []
    pack(blocks, Run(LIMITS, on_progress=told.append))
    assert told
    assert told[0].stage == "greedy planning"


def test_stopping_leaves_the_best_so_far() -> None:
    rng = random.Random(4)
    blocks = [Block.whole(rng.randint(1, 50), b := rng.randint(0, 30), b + rng.randint(1, 10)) for _ in range(60)]
    found = pack(blocks, Run(LIMITS, stop=lambda: True))
    check_packing(blocks, found)
    assert found.states == 1


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ((3, None), ("fixed-misaligned", "block 0", "at 3")),
        ((-4, None), ("fixed-misaligned", "at -4")),
        ((0, 4), ("fixed-overlap", "0 and 1", "at 0 and 4")),
    ],
)
def test_impossible_given_addresses_are_the_callers_error(
    offsets: tuple[int | None, int | None], expected: tuple[str, ...]
) -> None:
    blocks = [replace(Block.whole(8, 0, 2, 4), offset=offset) for offset in offsets]
    with fails(*expected, kind=UsageError):
        pack(blocks, None)


def test_very_many_blocks_are_swept_above_given_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "_MOST_PAIRS", -(10**9))
    rng = random.Random(5)
    blocks = [Block.whole(rng.randint(1, 9), b := rng.randint(0, 50), b + rng.randint(1, 9), 4) for _ in range(80)]
    blocks[3] = replace(blocks[3], offset=8)
    blocks[4] = Block(9, (BlockPart(0, 3, 0, 9), BlockPart(9, 12, 2, 5)), 2)
    found = pack(blocks, None)
    check_packing(blocks, found)
    assert found.method.endswith("time")


def test_the_seed_decides_the_local_search() -> None:
    rng = random.Random(6)
    blocks = [Block.whole(rng.randint(1, 99), b := rng.randint(0, 40), b + rng.randint(1, 20)) for _ in range(90)]
    one, two = (pack(blocks, Run(Limits(0.0, seed))) for seed in (0, 1))
    assert isinstance(one, Packing)
    assert one.offsets == pack(blocks, Run(Limits(0.0, 0))).offsets
    for found in (one, two):
        check_packing(blocks, found)


def hard_blocks() -> list[Block]:
    """Greedy planning leaves them above the bound, and local search tries 200 orders and more."""
    rng = random.Random(10)
    return [Block.whole(rng.randint(1, 40), at, at + rng.randint(1, 40)) for at in range(60)]


def test_when_the_time_is_up_the_first_plan_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    late = pack(hard_blocks(), Run(Limits(time_limit=0.0)))
    check_packing(hard_blocks(), late)
    assert (late.states, late.method) == (1, "greedy by size")
    monkeypatch.setattr(greedy, "MOST_SCANNED", 50)
    assert pack(hard_blocks(), Run(Limits(time_limit=0.0))).method == "best fit by time"


def test_local_search_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 0.01
        return now

    assert pack(hard_blocks(), None).states > 200
    monkeypatch.setattr("time.monotonic", tick)
    found = pack(hard_blocks(), Run(Limits(time_limit=0.5), started=0.0))
    check_packing(hard_blocks(), found)
    assert 14 < found.states < 50


def test_components_are_lowered_in_turns() -> None:
    one = generate(300, 4)
    other = [
        replace(block, parts=tuple([replace(part, begin=part.begin + 200, end=part.end + 200) for part in block.parts]))
        for block in generate(300, 5)
    ]
    blocks = [*one, *other]

    def heights(packing: Packing) -> tuple[int, int]:
        return height_of(one, packing.offsets[: len(one)]), height_of(other, packing.offsets[len(one) :])

    before = heights(pack(blocks, None))
    packing = pack(blocks, Run(Limits(None, effort=2.0)))
    check_packing(blocks, packing)
    after = heights(packing)
    assert packing.status == "feasible"
    assert all(new < 0.95 * old for old, new in zip(before, after, strict=True))
