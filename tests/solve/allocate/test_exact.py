"""The exact packing solvers against exhaustive search, and on tight instances whose height is known."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from memsched.check.packing import check_packing
from memsched.graph.packing import Block, BlockPart, Packing
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate.bounds import lower_bound
from memsched.solve.allocate.conflicts import without_overlaps
from memsched.solve.allocate.cpsat import fit
from memsched.solve.allocate.exact import solve
from memsched.solve.allocate.preprocess import common_unit, is_uniform, problem_of
from memsched.solve.allocate.rounds import PackingTask, Rounds
from memsched.solve.allocate.search import ATTEMPTS, Attempt, attempt
from scripts.bench.allocate import CAPACITY, generate, shuffled


def never() -> bool:
    return False


def pack(
    blocks: Sequence[Block], capacity: int | None = None, *, seconds: float | None = None, seed: int = 0
) -> Packing:
    bound = lower_bound(without_overlaps(blocks))[0]
    packing = solve(blocks, Run(Limits(seconds, seed)), capacity=capacity, lower_bound=bound)
    check_packing(blocks, packing, capacity)
    return packing


def collide(a: Block, at: int, b: Block, other: int) -> bool:
    return any(
        p.begin < q.end and q.begin < p.end and at + p.low < other + q.high and other + q.low < at + p.high
        for p in a.parts
        for q in b.parts
    )


def least_height(blocks: Sequence[Block], most: int) -> int:
    """Every address of every block up to ``most``; the least height."""
    best = most + 1

    def place(index: int, placed: list[int], height: int) -> None:
        nonlocal best
        if height >= best:
            return
        if index == len(blocks):
            best = height
            return
        block = blocks[index]
        given = range(0, best - block.size, block.alignment) if block.offset is None else (block.offset,)
        for at in given:
            if not any(collide(block, at, blocks[i], other) for i, other in enumerate(placed)):
                place(index + 1, [*placed, at], max(height, at + block.size))

    place(0, [], 0)
    return best


def random_blocks(rng: random.Random, kind: str, count: int = 6, times: int = 6) -> list[Block]:
    blocks: list[Block] = []
    while len(blocks) < count:
        begin = rng.randrange(times)
        end = rng.randint(begin + 1, times)
        size = rng.randint(1, 5)
        block = Block.whole(size, begin, end, rng.choice([1, 1, 2, 3]) if kind in {"alignment", "all"} else 1)
        if kind == "one alignment":
            block = replace(block, alignment=3)
        if kind in {"gaps", "all"} and end - begin > 2 and rng.random() < 0.6:
            at = rng.randrange(begin + 1, end - 1)
            block = replace(block, parts=(BlockPart(begin, at, 0, size), BlockPart(at + 1, end, 0, size)))
        if kind in {"windows", "all"} and rng.random() < 0.5:
            a, b, c, d = (rng.randint(0, size) for _ in range(4))
            later = rng.randrange(times)
            parts = (BlockPart(begin, end, min(a, b), max(a, b)), BlockPart(later, later + 1, min(c, d), max(c, d)))
            block = replace(block, parts=parts)
        if kind == "margins" and size > 2:
            block = replace(block, parts=(BlockPart(begin, end, 1, size - 1),))
        if kind in {"given", "all"} and rng.random() < 0.3:
            fixed = replace(block, offset=rng.randrange(0, 7) * block.alignment)
            if not any(b.offset is not None and collide(fixed, fixed.offset or 0, b, b.offset) for b in blocks):
                block = fixed
        blocks.append(block)
    return blocks


KINDS = ["plain", "one alignment", "alignment", "gaps", "windows", "margins", "given", "all"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_height_is_that_of_exhaustive_search(kind: str) -> None:
    rng = random.Random(f"heights {kind}")
    above = 0
    for _ in range(25):
        blocks = random_blocks(rng, kind, rng.randint(1, 6))
        packing = pack(blocks)
        assert packing.status == "optimal"
        least = least_height(blocks, packing.height)
        assert packing.height == least
        bound = lower_bound(without_overlaps(blocks))[0]
        above += least > bound
        if least > bound:
            assert pack(blocks, least - 1).status == "infeasible"
        assert pack(blocks, least).height <= least
    assert above or kind not in {"given", "all", "alignment"}


@pytest.mark.parametrize("kind", KINDS)
def test_each_solver_agrees_at_each_capacity(kind: str) -> None:
    rng = random.Random(f"solvers {kind}")
    for _ in range(6):
        blocks = [b for b in random_blocks(rng, kind, 5, 4) if any(p.begin < p.end and p.low < p.high for p in b.parts)]
        blocks = [replace(b, parts=tuple(p for p in b.parts if p.low < p.high)[:1]) for b in blocks]
        least = least_height(blocks, 40)
        unit = common_unit(blocks)
        problem = problem_of(blocks)
        assert problem is not None
        for capacity in range(unit * (max(0, least - 4) // unit), least + 2, unit):
            expected = "found" if capacity >= least else "infeasible"
            for number in range(ATTEMPTS):
                outcome = attempt(problem, Attempt(number, 0, capacity // unit, 10_000), never)
                assert outcome.status == expected, (blocks, capacity)
                assert expected == "found" or capacity < outcome.least * unit <= least
            for order in (None, range(len(blocks))):
                found = fit(blocks, capacity, unit, order, seed=0, conflicts=10_000, run=Run(Limits(None)))
                assert found.status == expected


def test_what_must_be_stacked_around_a_hole_needs_more_than_the_live_sum() -> None:
    """Two blocks keep their ends of the arena; one of 2 bytes does not fit into the two holes of 1 byte."""
    held = replace(Block.whole(1, 0, 2), offset=1)
    packing = pack([held, Block.whole(2, 0, 2)])
    assert (packing.height, packing.lower_bound, packing.status) == (4, 4, "optimal")
    assert packing.proof == "exhausted search"
    assert pack([held, Block.whole(2, 0, 2)], 3).status == "infeasible"


@pytest.mark.parametrize(
    ("count", "seed", "fill"), [(40, 1, 1.0), (60, 0, 1.0), (60, 6, 0.95), (80, 3, 0.8), (100, 13, 0.9)]
)
def test_tight_instances_are_solved_in_any_order_and_mirrored(count: int, seed: int, fill: float) -> None:
    blocks = generate(count, seed, times=40, fill=fill, thin=0.4)
    assert lower_bound(blocks)[0] == CAPACITY * 1024
    for variant in (blocks, shuffled(blocks, 1), shuffled(blocks, 2)):
        packing = pack(variant, CAPACITY * 1024)
        assert (packing.height, packing.status) == (CAPACITY * 1024, "optimal")


def test_the_result_depends_on_the_seed_alone() -> None:
    blocks = generate(60, 4, times=40)
    first = pack(blocks, seed=3)
    assert first.method == "exact search"
    assert pack(blocks, seed=3).offsets == first.offsets


def test_processes_give_the_result_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memsched.solve.allocate.rounds._ALONE_EFFORT", 0.0)
    blocks = generate(60, 4, times=40)
    task = PackingTask.of(blocks)
    assert task is not None
    offsets = []
    for workers in (1, 2):
        rounds = Rounds(task, Run(Limits(None, 0, workers)))
        found = rounds.settle((), 1 << 40, 0, CAPACITY * 1024, minimize=False)
        rounds.close()
        offsets.append(found)
    assert offsets[0] == offsets[1]
    assert offsets[0][1] == CAPACITY * 1024


def test_work_decides_about_processes_and_not_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: 1000 * clock())
    task = PackingTask.of(generate(60, 4, times=40))
    assert task is not None
    rounds = Rounds(task, Run(Limits(None, 0, 2)))
    rounds.settle((), 1 << 40, 0, 2 * CAPACITY * 1024, minimize=False)
    assert rounds._crew is None
    rounds.close()


def test_attempts_are_made_here_once_a_process_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memsched.solve.allocate.rounds._ALONE_EFFORT", 0.0)
    task = PackingTask.of(generate(60, 4, times=40))
    assert task is not None
    rounds = Rounds(task, Run(Limits(None, 0, 2)))
    alone = Rounds(task, Run(Limits(None, 0, 1)))
    for number in range(2):
        assert rounds._round(CAPACITY - 1, number) == alone._round(CAPACITY - 1, number)
        assert rounds._crew is not None
        pool = rounds._crew._pool
        for process in list((pool._processes or {}).values()):
            process.kill()
        while not pool._broken:
            time.sleep(0.01)
    rounds.close()


def test_the_time_limit_and_stop_end_it_with_the_best_known() -> None:
    blocks = generate(400, 5)
    # Of the processor: what others do meanwhile is not counted, and one process cannot spend more than passes.
    began, used = time.monotonic(), time.process_time()
    packing = solve(blocks, Run(Limits(0.3), started=began), lower_bound=lower_bound(blocks)[0])
    assert time.process_time() - used < 3
    check_packing(blocks, packing)
    stopped = solve(blocks, Run(Limits(None), started=began, stop=lambda: True), lower_bound=lower_bound(blocks)[0])
    check_packing(blocks, stopped)


def test_components_are_settled_apart() -> None:
    """Three times the same knot at different times and one block below all of them."""
    knot = generate(40, 1, times=20)
    blocks = [Block.whole(4096, 0, 90)]
    for number in range(3):
        blocks += [Block.whole(b.size, b.parts[0].begin + 30 * number, b.parts[0].end + 30 * number) for b in knot]
    packing = pack(blocks)
    assert packing.height == CAPACITY * 1024 + 4096


def test_a_block_that_always_lives_may_lie_between_two_windows_of_another() -> None:
    stairs = Block(5, (BlockPart(0, 1, 0, 2), BlockPart(1, 2, 3, 5)))
    packing = pack([Block.whole(1, 0, 2), stairs])
    assert (packing.offsets, packing.height) == ((2, 0), 5)


def test_degenerate_blocks() -> None:
    assert pack([]).status == "optimal"
    assert pack([Block(0, ())]).height == 0
    assert pack([Block(8, ()), Block.whole(0, 0, 3), Block.whole(4, 2, 2)]).height == 8
    assert pack([Block.whole(3, 0, 1)], 2).status == "infeasible"


def test_large_inputs_are_left_as_they_are() -> None:
    blocks = [Block.whole(1 + i % 7, i, i + 3) for i in range(5000)]
    used = time.process_time()
    packing = solve(blocks, Run(Limits(2.0)), lower_bound=lower_bound(blocks)[0])
    check_packing(blocks, packing)
    assert time.process_time() - used < 20


def test_bounds_of_exhausted_search_are_reached_or_missed() -> None:
    """The least capacity that an attempt does not exclude is never above the true one."""
    rng = random.Random(5)
    for _ in range(30):
        blocks = random_blocks(rng, "given", 5, 4)
        assert all(is_uniform(block) for block in blocks)
        problem = problem_of(blocks)
        assert problem is not None
        least = least_height(blocks, 60)
        for capacity in itertools.count(0):
            outcome = attempt(problem, Attempt(0, 0, capacity, 10_000), never)
            if outcome.status == "found":
                break
            assert outcome.least * problem.unit <= least
