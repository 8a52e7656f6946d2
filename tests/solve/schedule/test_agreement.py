"""Fused exact search, unfused exact search, CP-SAT and brute force agree on thousands of small random graphs."""

from __future__ import annotations

import random

import pytest

from memsched.check.schedule import check_schedule
from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule.exact import search
from memsched.solve.schedule.portfolio import schedule_graph
from tests.brute_force import optimal_peak
from tests.random_graphs import random_graph

GRAPHS = 2_000
BATCHES = 20


@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_methods_find_the_optimum(batch: int) -> None:
    rng = random.Random(f"agreement {batch}")
    for number in range(GRAPHS // BATCHES):
        graph = random_graph(rng, rng.randint(1, 12))
        best = optimal_peak(graph)
        storage = Storage.of(graph)
        fused = search(fuse(storage).tasks)
        unfused = search(single_op_tasks(storage))
        assert (fused.lower_bound, unfused.lower_bound) == (best, best)
        result = schedule_graph(graph, Run(Limits(None))).schedule
        assert result.status == "optimal"
        assert check_schedule(graph, result).peak == best
        if number % 25 == 0:
            by_cpsat = schedule_graph(graph, Run(Limits(None)), solver="cpsat").schedule
            assert by_cpsat.status == "optimal"
            assert check_schedule(graph, by_cpsat).peak == best
