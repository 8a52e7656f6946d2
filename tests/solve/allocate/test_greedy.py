"""Greedy addresses: correct always, as small as the bound nearly always, and fast on 100,000 buffers."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from memsched.check.packing import check_packing
from memsched.check.schedule import check_allocation
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Allocation
from memsched.graph.packing import Block, Packing
from memsched.solve.allocate import greedy
from memsched.solve.allocate.arena import allocate, place
from memsched.solve.allocate.bounds import live_bound
from memsched.solve.allocate.buffers import Buffer
from memsched.solve.allocate.greedy import GreedyPlanner
from tests.graph.examples import graph_of, schedule_of
from tests.random_graphs import random_graph, random_layered_graph, random_order


def random_buffers(rng: random.Random, count: int, steps: int, largest: int = 20) -> list[Buffer]:
    result = []
    for _ in range(count):
        first = rng.randrange(steps)
        result.append(Buffer(rng.randint(1, largest), first, min(steps - 1, first + rng.randint(0, 6)), ()))
    return result


def check(allocation: Allocation) -> None:
    """The checker on buffers alone."""
    check_allocation(graph_of({}, [], [], []), schedule_of((), 0), allocation)


def least_arena(wanted: list[Buffer]) -> int:
    """Every order, each buffer at the lowest place that is free: one of them gives the smallest arena."""
    best = sum(buffer.size for buffer in wanted)
    for order in itertools.permutations(wanted):
        placed: list[tuple[int, Buffer]] = []
        arena = 0
        for buffer in order:
            near = sorted(
                (offset, offset + other.size)
                for offset, other in placed
                if other.first_step <= buffer.last_step and buffer.first_step <= other.last_step
            )
            offset = 0
            for begin, end in near:
                if offset + buffer.size <= begin:
                    break
                offset = max(offset, end)
            placed.append((offset, buffer))
            arena = max(arena, offset + buffer.size)
        best = min(best, arena)
    return best


@pytest.mark.parametrize("alignment", [1, 16, 64])
def test_addresses_of_random_schedules_pass_the_checker(alignment: int) -> None:
    rng = random.Random(18)
    optimal = 0
    for _ in range(200):
        graph = random_graph(rng, rng.randint(0, 20), layable=True)
        storage, order = Storage.of(graph), random_order(rng, graph)
        profile = evaluate(storage, order)
        schedule = schedule_of(order, profile.peak, profile.in_place(storage, order))
        allocation = allocate(graph, schedule, alignment=alignment)
        check_allocation(graph, schedule, allocation)
        assert profile.peak <= allocation.lower_bound <= allocation.arena
        assert allocation.lower_bound == profile.peak or alignment > 1
        assert (allocation.status == "optimal") == (allocation.arena == allocation.lower_bound)
        optimal += allocation.status == "optimal"
    assert optimal > 150


def test_small_cases_are_near_the_least_arena() -> None:
    rng = random.Random(19)
    best = 0
    for _ in range(60):
        wanted = random_buffers(rng, 6, 6)
        allocation = place(wanted, alignment=1)
        check(allocation)
        least = least_arena(wanted)
        assert allocation.lower_bound <= least <= allocation.arena <= least * 1.3
        best += allocation.arena == least
    assert best > 50


def test_the_bound_is_the_largest_sum_of_rounded_sizes() -> None:
    wanted = [Buffer(10, 0, 3, ()), Buffer(5, 2, 5, ()), Buffer(20, 4, 4, ())]
    allocation = place(wanted, alignment=16)
    assert (allocation.lower_bound, allocation.arena, allocation.status) == (48, 48, "optimal")
    assert [(p.size, p.offset % 16) for p in allocation.placements] == [(16, 0), (16, 0), (32, 0)]


def test_neighbouring_gaps_join_and_an_exact_gap_is_taken() -> None:
    gaps = greedy._Gaps()
    assert [gaps.take(4, tight=True) for _ in range(4)] == [0, 4, 8, 12]
    gaps.give(0, 4)
    gaps.give(8, 4)
    gaps.give(4, 4)
    assert gaps.take(12, tight=True) == 0
    gaps.give(12, 4)
    # The gap at the top is part of the endless room above.
    assert gaps.take(6, tight=True) == 12
    gaps.give(0, 12)
    assert gaps.take(12, tight=False) == 0


def test_a_gap_of_exactly_the_size_is_used() -> None:
    together = GreedyPlanner([Block.whole(4, 0, 1)] * 3)
    assert together.in_order([0, 1, 2], tight=False) == [0, 4, 8]
    apart = GreedyPlanner([Block.whole(4, 0, 2), Block.whole(4, 0, 1), Block.whole(4, 1, 2)])
    assert apart.in_order([0, 1, 2], tight=True) == [0, 4, 4]
    between = GreedyPlanner([Block.whole(4, 0, 2), Block.whole(4, 3, 5), Block.whole(4, 0, 5), Block.whole(4, 0, 5)])
    assert between.in_order([0, 2, 3, 1], tight=True) == [0, 0, 4, 8]


def test_nothing_to_place() -> None:
    allocation = place([], alignment=16)
    assert (allocation.arena, allocation.lower_bound, allocation.status) == (0, 0, "optimal")


def blocks_of(wanted: list[Buffer]) -> list[Block]:
    return [Block.whole(buffer.size, buffer.first_step, buffer.last_step + 1) for buffer in wanted]


def test_every_plan_alone_is_correct() -> None:
    rng = random.Random(20)
    names = set()
    for _ in range(60):
        blocks = blocks_of(random_buffers(rng, 40, 25))
        planner = GreedyPlanner(blocks)
        planner.run(0)
        for height, offsets, method in planner.found:
            check_packing(blocks, Packing(tuple(offsets), height, 0, "feasible", "", method))
            assert height <= 2 * live_bound(blocks)
            names.add(method)
    assert len(names) == 14


def test_many_pairs_leave_the_fast_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = random_buffers(random.Random(21), 300, 20)
    monkeypatch.setattr(greedy, "_MOST_PAIRS", 1000)

    def methods() -> list[str]:
        planner = GreedyPlanner(blocks_of(wanted))
        planner.run(0)
        return [method for _, _, method in planner.found]

    assert methods() == [
        "best fit by time",
        "first fit by time",
        "best fit by reversed time",
        "first fit by reversed time",
    ]
    monkeypatch.setattr(greedy, "MOST_SCANNED", 100)
    assert methods() == ["best fit by time", "best fit by reversed time"]
    check(place(wanted, alignment=4))


def test_the_same_buffers_give_the_same_addresses() -> None:
    wanted = random_buffers(random.Random(22), 100, 30)
    assert place(wanted, alignment=8) == place(list(wanted), alignment=8)


def test_100000_ops_get_addresses() -> None:
    graph = random_layered_graph(random.Random(23), 100_000)
    order = range(len(graph.ops))
    schedule = schedule_of(order, evaluate(Storage.of(graph), order).peak)
    allocation = allocate(graph, schedule, alignment=16)
    check_allocation(graph, schedule, allocation)
    assert allocation.arena < 1.05 * allocation.lower_bound


def test_a_workspace_has_an_address_in_its_step() -> None:
    rng = random.Random(24)
    graph = random_graph(rng, 12, layable=True)
    graph = replace(graph, ops=tuple(replace(op, workspace=5) for op in graph.ops))
    storage, order = Storage.of(graph), random_order(rng, graph)
    profile = evaluate(storage, order)
    schedule = schedule_of(order, profile.peak, profile.in_place(storage, order))
    allocation = allocate(graph, schedule, alignment=1)
    check_allocation(graph, schedule, allocation)
    assert sorted(p.first_step for p in allocation.placements if not p.tensors) == list(range(12))
