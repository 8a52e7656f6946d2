"""Random orders and in-place choices keep to the peak and to what is allowed; the checker says so."""

from __future__ import annotations

import random

import pytest

from memsched.check.schedule import check_schedule
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Schedule
from memsched.solve.joint.orders import OrderCandidate, reorder_window, vary, vary_in_place
from tests.brute_force import topological_orders
from tests.random_graphs import random_graph, random_layered_graph


def checked_peak(graph: Graph, storage: Storage, candidate: OrderCandidate) -> int:
    """Return the peak that the independent checker finds for a candidate; it raises where anything is not allowed."""
    schedule = Schedule(candidate.order, candidate.in_place(storage), candidate.peak, 0, "feasible", "", "candidate")
    return check_schedule(graph, schedule).peak


@pytest.mark.parametrize("seed", range(60))
def test_variations_keep_to_the_limit(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 14))
    storage = Storage.of(graph)
    order = tuple(range(len(graph.ops)))
    limit = evaluate(storage, order).peak + rng.choice([0, 0, 5])
    base = OrderCandidate.of(storage, order)
    for _ in range(10):
        found = vary(storage, base, limit, rng, [0])
        if found is not None:
            assert checked_peak(graph, storage, found) == found.peak <= limit
            base = found


def test_the_walk_reaches_every_order_of_a_small_graph_that_keeps_to_the_limit() -> None:
    graph = random_layered_graph(random.Random(4), 6, width=4)
    storage = Storage.of(graph)
    peaks = {order: evaluate(storage, order).peak for order in topological_orders(graph)}
    limit = sorted(peaks.values())[len(peaks) // 2]
    start = min(peaks, key=lambda order: peaks[order])
    rng = random.Random(0)
    found = {reorder_window(storage, start, 0, 6, limit, rng) for _ in range(60 * len(peaks))}
    assert found == {order for order, peak in peaks.items() if peak <= limit}
    assert 1 < len(found) < len(peaks)


def test_nothing_outside_the_window_moves_and_impossible_limits_are_given_up() -> None:
    graph = random_layered_graph(random.Random(2), 30, width=8)
    storage = Storage.of(graph)
    order = tuple(range(30))
    rng = random.Random(1)
    found = reorder_window(storage, order, 10, 20, 10**6, rng)
    assert found is not None
    assert found != order
    assert (found[:10], found[20:]) == (order[:10], order[20:])
    assert reorder_window(storage, order, 0, 30, evaluate(storage, order).peak // 4, rng) is None


def test_in_place_choices_are_dropped_only_where_the_limit_permits() -> None:
    chosen = set()
    for seed in range(40):
        graph = random_graph(random.Random(7), 10, views=False)
        storage = Storage.of(graph)
        order = tuple(range(10))
        profile = evaluate(storage, order)
        tight = vary_in_place(storage, order, profile.peak, random.Random(seed))
        assert tight.peak == profile.peak
        loose = vary_in_place(storage, order, 10**6, random.Random(seed))
        assert checked_peak(graph, storage, loose) == loose.peak
        chosen.add(loose.taken)
    assert len(chosen) > 1


def test_the_same_seed_gives_the_same_orders() -> None:
    graph = random_layered_graph(random.Random(3), 40, width=8)
    storage = Storage.of(graph)
    base = OrderCandidate.of(storage, range(40))
    walks = [[vary(storage, base, base.peak, random.Random(seed), [5, 9]) for seed in range(20)] for _ in range(2)]
    assert walks[0] == walks[1]
