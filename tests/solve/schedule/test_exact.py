"""The threshold search against brute force, and what its limits promise."""

from __future__ import annotations

import random

import pytest

from memsched.graph.contraction import Tasks, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.solve.schedule.exact import search
from tests.brute_force import optimal_peak
from tests.random_graphs import random_graph


def chains(count: int, length: int, sizes: tuple[int, ...]) -> Graph:
    """Return ``count`` parallel chains from one input to one op that joins them."""
    tensors = [Tensor("x", 10)]
    ops = []
    ends = []
    for chain in range(count):
        current = 0
        for position in range(length):
            tensors.append(Tensor(f"c{chain}_{position}", sizes[(chain + position) % len(sizes)]))
            ops.append(Op(f"op{chain}_{position}", "Op", (current,), (len(tensors) - 1,)))
            current = len(tensors) - 1
        ends.append(current)
    tensors.append(Tensor("y", 1))
    ops.append(Op("join", "Op", tuple(ends), (len(tensors) - 1,)))
    return Graph("chains", tuple(tensors), tuple(ops), (0,), (len(tensors) - 1,))


def tasks_of(graph: Graph) -> Tasks:
    return single_op_tasks(Storage.of(graph))


def peak_of(tasks: Tasks, order: tuple[int, ...]) -> int:
    return evaluate(tasks.storage, tasks.expand(order)).peak


@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        graph = random_graph(rng, rng.randint(1, 11))
        tasks = tasks_of(graph)
        result = search(tasks)
        best = optimal_peak(graph)
        assert result.complete
        assert result.order is not None
        assert result.lower_bound == best
        assert peak_of(tasks, result.order) == best


@pytest.mark.parametrize("seed", range(5))
def test_with_bounds_from_outside(seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(60):
        graph = random_graph(rng, rng.randint(2, 10))
        tasks = tasks_of(graph)
        best = optimal_peak(graph)
        from_below = search(tasks, lower_bound=best, upper_bound=best + 1)
        assert from_below.order is not None
        assert peak_of(tasks, from_below.order) == best
        nothing_better = search(tasks, upper_bound=best)
        assert nothing_better.order is None
        assert nothing_better.complete
        assert nothing_better.lower_bound == best
        loose = search(tasks, lower_bound=best + 3)
        assert loose.order is not None
        assert peak_of(tasks, loose.order) <= best + 3


def test_a_dive_that_starts_too_low_still_proves() -> None:
    graph = chains(4, 5, (7, 1, 9, 3, 2))
    tasks = tasks_of(graph)
    optimum = search(tasks).lower_bound
    assert search(tasks, lower_bound=optimum - 2).lower_bound == optimum


def test_state_limit_gives_a_bound_and_no_order() -> None:
    tasks = tasks_of(chains(7, 6, (5, 9, 3, 8, 2, 7, 4)))
    optimum = search(tasks).lower_bound
    stopped = search(tasks, max_states=3)
    assert not stopped.complete
    assert stopped.order is None
    assert stopped.lower_bound <= optimum
    assert stopped.states <= 3


def test_stop_is_asked() -> None:
    tasks = tasks_of(chains(7, 6, (5, 9, 3, 8, 2, 7, 4)))
    result = search(tasks, stop=lambda: True)
    assert not result.complete
    assert result.order is None


def test_safe_moves_make_parallel_chains_cheap() -> None:
    # 16 chains of 30 ops have 31^16 downsets; safe moves leave a handful.
    tasks = tasks_of(chains(16, 30, (9, 4, 7, 2, 8, 3)))
    result = search(tasks, max_states=200_000)
    assert result.complete
    assert result.order is not None
    assert peak_of(tasks, result.order) == result.lower_bound


def test_bounds_are_told_as_they_rise() -> None:
    tasks = tasks_of(chains(5, 4, (7, 1, 9, 3)))
    told: list[int] = []
    result = search(tasks, on_bound=told.append)
    assert told == sorted(set(told))
    assert told[-1] == result.lower_bound


def test_no_ops_and_one_op() -> None:
    empty = tasks_of(Graph("empty", (Tensor("x", 4),), (), (0,), (0,)))
    assert search(empty).order == ()
    one = tasks_of(Graph("one", (Tensor("x", 4), Tensor("y", 2)), (Op("a", "Op", (0,), (1,)),), (0,), (1,)))
    assert search(one).order == (0,)
    assert search(one).lower_bound == 6
