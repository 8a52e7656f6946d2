"""Windows keep an order valid, never worsen it, and find what a proof is too dear for."""

from __future__ import annotations

import random

import pytest

from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.solve.schedule.orders import file_order
from memsched.solve.schedule.windows import improve
from tests.brute_force import optimal_peak
from tests.random_graphs import random_graph, random_layered_graph, random_order
from tests.solve.schedule.test_exact import chains


@pytest.mark.parametrize("seed", range(5))
def test_a_window_over_everything_is_the_exact_search(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        graph = random_graph(rng, rng.randint(1, 11))
        tasks = single_op_tasks(Storage.of(graph))
        result = improve(tasks, random_order(rng, graph))
        assert evaluate(tasks.storage, tasks.expand(result.order)).peak == result.peak == optimal_peak(graph)


@pytest.mark.parametrize("seed", range(3))
def test_a_large_graph_is_improved_and_stays_valid(seed: int) -> None:
    graph = random_layered_graph(random.Random(seed), 500, width=30)
    tasks = single_op_tasks(Storage.of(graph))
    before = evaluate(tasks.storage, file_order(tasks.storage)).peak
    told: list[int] = []
    result = improve(tasks, file_order(tasks.storage), states_per_window=2_000, on_peak=told.append)
    assert evaluate(tasks.storage, tasks.expand(result.order)).peak == result.peak < before
    place = {task: step for step, task in enumerate(result.order)}
    assert all(place[p] < place[task] for task in range(len(tasks)) for p in tasks.preds[task])
    assert told == sorted(told, reverse=True)
    assert told[-1] == result.peak


def test_what_is_good_enough_is_left_alone() -> None:
    tasks = single_op_tasks(Storage.of(chains(4, 6, (7, 1, 9, 3))))
    order = tuple(range(len(tasks)))
    assert improve(tasks, order, lower_bound=10_000).order == order
    assert improve(tasks, order, stop=lambda: True).order == order
