"""Lower bounds never lie above the optimum, and segments solved apart give the whole's optimum."""

from __future__ import annotations

import random

import pytest

from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.schedule.bounds import largest_step, necessary_bytes
from memsched.schedule.exact import search
from memsched.schedule.segments import split
from tests.brute_force import optimal_peak
from tests.random_graphs import random_graph


@pytest.mark.parametrize("seed", range(5))
def test_bounds_are_bounds(seed: int) -> None:
    rng = random.Random(seed)
    tight = 0
    for _ in range(100):
        graph = random_graph(rng, rng.randint(1, 10))
        tasks = single_op_tasks(Storage.of(graph))
        best = optimal_peak(graph)
        trivial, necessary = largest_step(tasks.storage), necessary_bytes(tasks)
        assert trivial <= necessary <= best
        tight += necessary == best
    assert tight > 30


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
