"""Bounds of excerpts: below the optimum of the whole in every window, and tight where a window holds the peak."""

from __future__ import annotations

import random

import pytest

from memsched.graph import dag
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Op
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule import excerpts, refine
from memsched.solve.schedule.excerpts import excerpt, raise_bound
from memsched.solve.schedule.portfolio import schedule_graph
from scripts.networks.growth import layered
from tests.brute_force import optimal_peak
from tests.graph.examples import graph_of
from tests.random_graphs import random_graph, random_order


def _places(order: tuple[int, ...]) -> list[int]:
    places = [0] * len(order)
    for place, op in enumerate(order):
        places[op] = place
    return places


def test_an_excerpt_of_a_fork() -> None:
    # x -> a -> b, a -> c, both read by d; the window is b alone: a is given to it, and c waits for nothing in it.
    ops = [
        Op("a", "Op", (0,), (1,)),
        Op("b", "Op", (1,), (2,)),
        Op("c", "Op", (1,), (3,)),
        Op("d", "Op", (2, 3), (4,)),
    ]
    storage = Storage.of(graph_of({"x": 1, "a": 10, "b": 20, "c": 40, "d": 2}, ops, ["x"], ["d"]))
    found = excerpt(storage, (0, 1, 2, 3), [0, 1, 2, 3], 1, 2)
    assert [op.name for op in found.ops] == ["give0", "Op1", "wait3"]
    assert [tensor.size for tensor in found.tensors] == [20, 10]
    assert optimal_peak(found) == 30
    # With c in the window there is nothing left to give or to wait, and a and b are held beside c, or a and c beside b.
    both = excerpt(storage, (0, 1, 2, 3), [0, 1, 2, 3], 1, 3)
    assert (
        optimal_peak(both)
        == 70
        == optimal_peak(graph_of({"x": 1, "a": 10, "b": 20, "c": 40, "d": 2}, ops, ["x"], ["d"]))
    )


@pytest.mark.parametrize("seed", range(3))
def test_no_excerpt_needs_more_than_the_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"excerpts {seed}")
    tight = 0
    for _ in range(120):
        graph = random_graph(rng, rng.randint(2, 7))
        storage, order = Storage.of(graph), random_order(rng, graph)
        start = rng.randrange(len(order))
        end = rng.randint(start + 1, len(order))
        monkeypatch.setattr(excerpts, "_REACH", rng.choice([0, 1, 3, 100]))
        monkeypatch.setattr(excerpts, "_MOST_BESIDE", rng.choice([1, 2, 100]))
        found = excerpt(storage, order, _places(order), start, end)
        dag.validate(found)
        least = optimal_peak(graph)
        assert optimal_peak(found) + storage.variables <= least
        tight += optimal_peak(found) + storage.variables == least
    assert tight > 10


def test_bounds_that_are_told_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "_WINDOWS", (2, 4))
    rng = random.Random(7)
    for _ in range(80):
        graph = random_graph(rng, rng.randint(2, 7))
        storage, order = Storage.of(graph), random_order(rng, graph)
        told: list[int] = []
        found = raise_bound(
            *(storage, order),
            lower_bound=0,
            states_per_window=rng.choice([1, 5, 1_000]),
            stop=lambda: False,
            on_bound=told.append,
            on_states=lambda _states, _ops: None,
        )
        assert told == sorted(set(told))
        assert found.lower_bound == max(told, default=0) <= optimal_peak(graph) <= evaluate(storage, order).peak


def test_a_large_graph_is_proven_by_an_excerpt(monkeypatch: pytest.MonkeyPatch) -> None:
    # What no search of the whole is tried for.
    monkeypatch.setattr(refine, "_SEARCH_TASKS", 100)
    found = schedule_graph(layered(1_500), Run(Limits(None, effort=2.0)))
    assert (found.schedule.status, found.schedule.proof) == ("optimal", excerpts.EXCERPTS)
