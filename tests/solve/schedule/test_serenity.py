"""SERENITY's method against brute force and against our own exact search, and its budgets."""

from __future__ import annotations

import random

import pytest

from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.solve.schedule import exact
from scripts.bench.serenity import serenity
from tests.brute_force import optimal_peak
from tests.random_graphs import random_graph, random_layered_graph
from tests.solve.schedule.test_exact import chains
from tests.solve.schedule.test_partition import fused_network


@pytest.mark.parametrize("states_per_step", [10_000, 12])
def test_finds_the_optimum(states_per_step: int) -> None:
    rng = random.Random(1)
    solved = 0
    for _ in range(120):
        graph = random_graph(rng, rng.randint(0, 11))
        tasks = single_op_tasks(Storage.of(graph))
        result = serenity(tasks, states_per_step=states_per_step)
        assert sorted(result.order) == list(range(len(tasks)))
        assert evaluate(tasks.storage, tasks.expand(result.order)).peak == result.peak
        least = optimal_peak(graph)
        assert result.peak == least if result.complete else result.peak >= least
        solved += result.complete
    assert solved > 80
    if states_per_step == 10_000:
        assert solved == 120


@pytest.mark.parametrize("name", ["darts", "nasnet_a", "randwire2"])
def test_agrees_with_the_threshold_search_on_networks(name: str) -> None:
    tasks = fused_network(name)
    result = serenity(tasks, states_per_step=20_000)
    assert result.complete
    assert result.peak == exact.search(tasks).lower_bound


def test_budget_falls_on_too_many_downsets_and_rises_on_none() -> None:
    tasks = single_op_tasks(Storage.of(chains(4, 6, (7, 1, 9, 3))))
    free = serenity(tasks)
    assert free.complete
    result = serenity(tasks, states_per_step=60)
    endings = [step.ending for step in result.budgets]
    assert endings[0] == "timeout"
    assert "no solution" in endings
    for before, after in zip(result.budgets, result.budgets[1:], strict=False):
        if before.segment == after.segment:
            assert (after.budget < before.budget) == (before.ending == "timeout")
    assert result.states == sum(step.states for step in result.budgets)
    if result.complete:
        assert result.peak == free.peak


def test_limits_end_it_with_an_order() -> None:
    tasks = single_op_tasks(Storage.of(random_layered_graph(random.Random(0), 120, width=20)))
    for result in (
        serenity(tasks, max_states=500),
        serenity(tasks, stop=lambda: True),
        serenity(tasks, states_per_step=3),
    ):
        assert not result.complete
        assert sorted(result.order) == list(range(len(tasks)))
        assert result.peak == max(tasks.run(result.order)[0])
    assert serenity(tasks, max_states=500).states <= 500


def test_same_states_every_time() -> None:
    tasks = fused_network("randwire3")
    assert serenity(tasks, max_states=5_000) == serenity(tasks, max_states=5_000)
