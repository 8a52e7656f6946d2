"""BTSearch against brute force and the threshold search, by both metrics, and what its limits promise."""

from __future__ import annotations

import random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.graph.contraction import Tasks, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import exact
from memsched.solve.schedule.backtrack import Metric, search
from memsched.solve.schedule.portfolio import schedule_graph
from scripts.bench.runner.text import printed
from scripts.bench.schedule.backtrack import random_order, series_parallel, tables
from tests.brute_force import footprints, optimal_peak, topological_orders
from tests.random_graphs import random_graph, random_layered_graph
from tests.solve.schedule.test_exact import chains
from tests.solve.schedule.test_partition import fused_network

METRICS: tuple[Literal["peak", "sum"], ...] = ("peak", "sum")


def tasks_of(graph: Graph) -> Tasks:
    return single_op_tasks(Storage.of(graph))


def cost_of(tasks: Tasks, order: tuple[int, ...], metric: Metric) -> int:
    profile = evaluate(tasks.storage, tasks.expand(order))
    return profile.peak if metric == "peak" else sum(profile.footprints)


def least_sum(graph: Graph) -> int:
    return min(sum(footprints(graph, order)) for order in topological_orders(graph))


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_finds_the_least_peak(seed: int, ops: int) -> None:
    graph = random_graph(random.Random(seed), ops)
    least = optimal_peak(graph)
    storage = Storage.of(graph)
    for tasks, plain in (
        (single_op_tasks(storage), False),
        (single_op_tasks(storage), True),
        (fuse(storage).tasks, False),
    ):
        result = search(tasks, plain=plain)
        assert result.complete
        assert result.cost == cost_of(tasks, result.order, "peak") == least
    found = exact.search(single_op_tasks(storage))
    assert found.lower_bound == least


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(0, 5))
def test_finds_the_least_sum(seed: int, ops: int) -> None:
    graph = random_graph(random.Random(seed), ops)
    tasks = tasks_of(graph)
    least = least_sum(graph)
    for plain in (False, True):
        result = search(tasks, metric="sum", plain=plain)
        assert result.complete
        assert result.cost == cost_of(tasks, result.order, "sum") == least


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(10, 16))
def test_both_ways_of_marking_give_the_same_sum(seed: int, ops: int) -> None:
    graph = random_graph(random.Random(seed), ops)
    for tasks in (tasks_of(graph), fuse(Storage.of(graph)).tasks):
        result, plain = search(tasks, metric="sum"), search(tasks, metric="sum", plain=True)
        assert result.complete
        assert plain.complete
        assert result.cost == plain.cost == cost_of(tasks, result.order, "sum")
        assert result.states == result.distinct <= plain.distinct + 1 <= plain.states + 1


def test_the_metric_of_the_document_worked_by_hand() -> None:
    # Branch a needs 8 and leaves 1, branch b needs 2 and leaves 6; c joins them.
    tensors = tuple(Tensor(name, size) for name, size in (("x", 4), ("a1", 8), ("a2", 1), ("b", 6), ("c", 1)))
    ops = (
        Op("to_b", "Op", (0,), (3,)),
        Op("to_a1", "Op", (0,), (1,)),
        Op("to_a2", "Op", (1,), (2,)),
        Op("join", "Op", (2, 3), (4,)),
    )
    tasks = tasks_of(Graph("example", tensors, ops, (0,), (4,)))
    # b first: 4+6, 4+6+8, 6+8+1, 6+1+1. Last: 4+8, 4+8+1, 4+1+6, 1+6+1. Between: 4+8, 4+8+6, 8+1+6, 8.
    result = search(tasks, metric="sum")
    assert result.order == (1, 2, 0, 3)
    assert result.cost == 12 + 13 + 11 + 8
    full = 4 + 8 + 1 + 6 + 1  # Mem_full of MemoriaNova's metric: nothing is ever freed
    assert 4 * full - result.cost == 8 + 7 + 9 + 12
    assert search(tasks).cost == 13


def test_the_least_sum_and_the_least_peak_can_be_different_orders() -> None:
    differ = 0
    for seed in range(60):
        tasks = tasks_of(random_graph(random.Random(seed), 8))
        by_sum = search(tasks, metric="sum")
        differ += cost_of(tasks, by_sum.order, "peak") > search(tasks).cost
    assert differ


@pytest.mark.parametrize("name", ["darts", "nasnet_a", "hrnet_w18_small_v1"])
def test_agrees_with_the_threshold_search_on_networks(name: str) -> None:
    tasks = fused_network(name)
    result = search(tasks)
    assert result.complete
    assert result.cost == exact.search(tasks).lower_bound == cost_of(tasks, result.order, "peak")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("plain", [False, True])
def test_limits_end_it_with_the_best_order_so_far(metric: Metric, plain: bool) -> None:
    tasks = tasks_of(random_layered_graph(random.Random(0), 60, width=15))
    start = tuple(range(60))
    results = [
        search(tasks, metric=metric, plain=plain, max_states=2_000),
        search(tasks, metric=metric, plain=plain, max_marked=2_000),
        search(tasks, metric=metric, plain=plain, stop=lambda: True),
    ]
    for result in results:
        assert not result.complete
        assert sorted(result.order) == list(start)
        assert result.cost == cost_of(tasks, result.order, metric) <= cost_of(tasks, start, metric)
        assert result.distinct <= result.states
    assert [result.states for result in results[::2]] == [2_000, 0]
    assert results[1].distinct == 2_000
    assert results[0].cost < cost_of(tasks, start, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_what_is_not_memoised_is_parsed_again(metric: Metric) -> None:
    tasks = tasks_of(chains(4, 3, (7, 1, 9, 3)))
    results = [search(tasks, metric=metric, plain=True, max_parsed=parsed) for parsed in (0, 5, 1_000)]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("metric", METRICS)
def test_better_orders_are_told_as_they_are_found(metric: Metric) -> None:
    tasks = tasks_of(random_layered_graph(random.Random(3), 26, width=6))
    told: list[tuple[int, ...]] = []
    result = search(tasks, metric=metric, on_order=told.append)
    costs = [cost_of(tasks, order, metric) for order in told]
    assert costs == sorted(set(costs), reverse=True)
    assert told[-1] == result.order
    again = search(tasks, metric=metric, start=result.order, on_order=told.append)
    assert told[-1] == again.order == result.order
    assert again.complete


def test_an_order_within_the_bound_is_good_enough() -> None:
    tasks = tasks_of(chains(4, 5, (7, 1, 9, 3, 2)))
    least = search(tasks)
    loose = search(tasks, lower_bound=least.cost + 4)
    assert loose.complete
    assert loose.cost <= least.cost + 4
    assert loose.states < least.states


@pytest.mark.parametrize(("blocks", "branches", "length"), [(1, 2, 4), (3, 3, 2), (5, 2, 3)])
def test_each_serial_subgraph_is_counted_once(blocks: int, branches: int, length: int) -> None:
    tasks = tasks_of(series_parallel(blocks, branches, length, seed=1))
    states = (length + 1) ** branches
    by_sum, plain = search(tasks, metric="sum"), search(tasks, metric="sum", plain=True)
    assert by_sum.states == by_sum.distinct == blocks * (states - 1)
    assert plain.distinct == blocks * states - 1
    assert plain.cost == by_sum.cost
    assert search(tasks).distinct <= by_sum.distinct


def test_long_graphs_need_no_recursion() -> None:
    tasks = tasks_of(chains(1, 5_000, (3, 5)))
    for metric in METRICS:
        for plain in (False, True):
            assert search(tasks, metric=metric, plain=plain).complete


@pytest.mark.parametrize("metric", METRICS)
def test_no_ops(metric: Metric) -> None:
    tasks = tasks_of(Graph("empty", (Tensor("x", 4),), (), (0,), (0,)))
    result = search(tasks, metric=metric)
    assert result.order == ()
    assert result.complete
    assert result.cost == (4 if metric == "peak" else 0)


def test_as_the_solver_of_a_graph() -> None:
    proven = 0
    for seed in range(60):
        graph = random_graph(random.Random(seed), 10)
        schedule = schedule_graph(graph, Run(Limits()), solver="backtrack").schedule
        assert schedule.status == "optimal"
        assert schedule.peak == schedule.lower_bound == optimal_peak(graph)
        proven += schedule.proof.startswith("backtracking")
    assert proven
    limited = random_layered_graph(random.Random(0), 60, width=15)
    schedule = schedule_graph(limited, Run(Limits(time_limit=0)), solver="backtrack").schedule
    assert schedule.status == "feasible"


# The benchmark --------------------------------------------------------------------------------------------------


def test_random_orders_are_orders_and_differ() -> None:
    storage = Storage.of(series_parallel(3, 3, 3))
    orders = [random_order(storage, seed) for seed in range(20)]
    assert len(set(orders)) == 20
    assert orders[0] == random_order(storage, 0)
    for order in orders:
        place = {op: step for step, op in enumerate(order)}
        assert sorted(place) == list(range(30))
        assert all(place[before] < place[op] for op, befores in enumerate(storage.preds) for before in befores)


def test_tables_of_the_benchmark_are_whole() -> None:
    blocks = "\n".join(printed(tables(["googlenet"], "paper", 0.02, 3))).split("\n\n")
    found = [block.splitlines() for block in blocks if block.startswith("|")]
    assert [len({line.count("|") for line in table}) for table in found] == [1, 1, 1]
    assert [line.split(" | ")[:4] for line in found[0][2:]] == [
        ["| googlenet", "fused", "1", "**6,272.0**"],
        ["| googlenet", "ops", "142", "**6,272.0**"],
    ]
    _, least, average = (line.strip("| ").split(" | ") for line in found[1][1:])
    assert float(least[5].removesuffix(" %")) > 0
    assert average[0] == "mean"
    assert found[2][2].startswith("| 1 | 2 | 4 | 9 | 8 | 25 |")
