"""Lower bounds never lie above the optimum, and segments solved apart give the whole's optimum."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.rewrites.recompute.cost import least_peak
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.bounds import first_and_last_step, largest_step, necessary_bytes
from memsched.solve.schedule.exact import search
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.solve.schedule.segments import split
from tests.brute_force import optimal_peak, residue
from tests.random_graphs import random_graph


@pytest.mark.parametrize("seed", range(5))
def test_bounds_are_bounds(seed: int) -> None:
    rng = random.Random(seed)
    tight = at_ends = 0
    for _ in range(100):
        graph = random_graph(rng, rng.randint(1, 10))
        tasks = single_op_tasks(Storage.of(graph))
        best = optimal_peak(graph)
        trivial, necessary = largest_step(tasks.storage), necessary_bytes(tasks)
        ends = first_and_last_step(tasks.storage)
        assert trivial <= necessary <= best
        assert ends <= best
        tight += max(ends, necessary) == best
        at_ends += ends == best > necessary
    assert tight > 60
    assert at_ends > 0


def _with_outputs(rng: random.Random, graph: Graph) -> Graph:
    """Return the graph with some of its tensors as outputs, too, views and overwritten ones among them."""
    produced = [tensor for op in graph.ops for tensor in op.outputs if tensor not in graph.variables]
    more = rng.sample(produced, rng.randint(0, len(produced)))
    return replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *more))))


@pytest.mark.parametrize("seed", range(5))
def test_what_certainly_lives_at_the_end_is_in_the_bound(seed: int) -> None:
    """With many outputs, some in each other's bytes: no bound is above the optimum, and none below all outputs."""
    rng = random.Random(seed)
    at_end = 0
    for _ in range(100):
        graph = _with_outputs(rng, random_graph(rng, rng.randint(1, 8)))
        best = optimal_peak(graph)
        end = residue(graph, set(range(len(graph.ops))))
        for solver in ("file", "greedy", "auto"):
            schedule = schedule_graph(graph, Run(Limits(5.0)), solver=solver).schedule
            assert end <= schedule.lower_bound <= best
        may = [False] * len(graph.ops)
        assert end <= least_peak(graph, may) <= best
        assert end <= least_peak(graph, [not flag for flag in may]) <= best
        at_end += end == best
    assert at_end > 10


def test_all_outputs_of_a_wide_graph_live_at_the_end() -> None:
    tensors = (Tensor("x", 100), *(Tensor(f"y{number}", 50) for number in range(20)))
    ops = tuple(Op(f"op{number}", "Op", (0,), (number + 1,)) for number in range(20))
    graph = Graph("wide", tensors, ops, (0,), tuple(range(1, 21)))
    schedule = schedule_graph(graph, Run(Limits()), solver="file").schedule
    # The last op reads the input as well.
    assert (schedule.lower_bound, schedule.peak, schedule.status) == (1100, 1100, "optimal")


def test_a_tensor_needed_later_counts_in_between() -> None:
    tensors = tuple(Tensor(name, size) for name, size in (("x", 10), ("a", 50), ("b", 50), ("y", 10)))
    ops = (Op("first", "Op", (0,), (1,)), Op("second", "Op", (1,), (2,)), Op("third", "Op", (0, 2), (3,)))
    tasks = single_op_tasks(Storage.of(Graph("skip", tensors, ops, (0,), (3,))))
    assert largest_step(tasks.storage) == 100
    assert necessary_bytes(tasks) == 110


@pytest.mark.parametrize("seed", range(5))
def test_segments_give_the_optimum_of_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    several = 0
    for _ in range(100):
        graph = random_graph(rng, rng.randint(1, 11))
        tasks = single_op_tasks(Storage.of(graph))
        parts = split(tasks)
        several += len(parts) > 1
        assert [number for _, numbers in parts for number in numbers] == list(range(len(tasks)))
        order: list[int] = []
        bounds = []
        for part, numbers in parts:
            result = search(part)
            assert result.order is not None
            bounds.append(result.lower_bound)
            order += [numbers[local] for local in result.order]
        peak = evaluate(tasks.storage, tasks.expand(order)).peak
        assert peak == max(bounds) == optimal_peak(graph)
    assert several > 10
