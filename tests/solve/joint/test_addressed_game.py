"""The game with addresses, against every order and every packing, and against the game without addresses."""

from __future__ import annotations

import random

from memsched.lowering.apply import apply_target
from memsched.targets.load import load_target
from tests.rewrites.recompute.pebbles import least_points, mixed
from tests.rewrites.recompute.tiny_graphs import tiny
from tests.solve.joint.addressed_game import least_cost
from tests.solve.joint.packing_brute_force import least_arena

IDEAL = load_target("ideal")


def test_without_repetitions_it_is_the_least_arena_of_all_orders() -> None:
    for seed in range(16):
        graph = tiny(random.Random(seed), 3)
        arena = least_arena(apply_target(graph, IDEAL), peak_limit=10**6)
        assert arena is not None
        assert least_cost(graph, IDEAL, arena, 0) == 0, seed
        assert least_cost(graph, IDEAL, arena - 1, 0) is None, seed


def test_it_repeats_what_the_game_without_addresses_repeats() -> None:
    for make, ops, seed in ((tiny, 4, 72), (tiny, 5, 18), (tiny, 5, 80), (mixed, 4, 54)):
        graph = make(random.Random(seed), ops)
        points = least_points(graph, IDEAL)
        assert len(points) == 2
        assert [least_cost(graph, IDEAL, peak, cost) for peak, cost in points] == [cost for _, cost in points]
        (_, free), (peak, dear) = points
        assert least_cost(graph, IDEAL, peak, (free + dear) // 2) is None
        assert least_cost(graph, IDEAL, peak - 1, 10 * dear) is None
