"""Orders for runtimes that hand dead buffers on, against all orders of small graphs."""

from __future__ import annotations

import random

from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
from memsched.runtimes.onnxruntime.reuse_search import least_with_reuse
from memsched.solve.schedule.orders import ORDERS
from tests.brute_force import topological_orders
from tests.random_graphs import random_graph, random_layered_graph
from tests.runtimes.onnxruntime.test_reuse import all_read


def test_near_the_best_of_all_orders() -> None:
    missed = 0
    for seed in range(80):
        rng = random.Random(seed)
        graph = all_read(random_graph(rng, rng.randint(1, 7)))
        planned = PlannerGraph.of(graph)
        found = least_with_reuse(planned, [order(planned.storage) for order in ORDERS.values()], effort=3_000)
        assert simulate_reuse(planned, found.order).peak == found.peak
        least = min(simulate_reuse(planned, order).peak for order in topological_orders(graph))
        assert found.peak >= least, seed
        missed += found.peak > least
    assert missed <= 2


def test_valid_and_never_worse_than_the_candidates() -> None:
    for seed in range(20):
        graph = all_read(random_layered_graph(random.Random(seed), 40))
        planned = PlannerGraph.of(graph)
        candidates = [order(planned.storage) for order in ORDERS.values()]
        found = least_with_reuse(planned, candidates, effort=8_000, seed=seed)
        assert found.peak <= min(simulate_reuse(planned, order).peak for order in candidates)
        place = {op: step for step, op in enumerate(found.order)}
        assert sorted(place) == list(range(len(graph.ops)))
        assert all(place[b] < place[op] for op in place for b in planned.storage.preds[op])
        assert found == least_with_reuse(planned, candidates, effort=8_000, seed=seed)


def test_candidates_are_kept_where_nothing_is_tried() -> None:
    planned = PlannerGraph.of(all_read(random_graph(random.Random(1), 9)))
    orders = [order(planned.storage) for order in ORDERS.values()]
    assert least_with_reuse(planned, orders[:1], stop=lambda: True).order == orders[0]
    assert least_with_reuse(planned, orders[:1], lower_bound=10**9).order == orders[0]
