"""The search among orders that ONNX Runtime's default rule can produce, against all file orders of small graphs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memsched.graph.model import Graph
from memsched.runtimes.onnxruntime import default_rule
from memsched.runtimes.onnxruntime.default_rule import best_default_order
from memsched.runtimes.onnxruntime.orders import default_order, walk_backwards
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
from memsched.solve.schedule.orders import ORDERS
from tests.brute_force import topological_orders
from tests.random_graphs import random_graph
from tests.runtimes.onnxruntime.test_reuse import all_read, shaped


def stored(graph: Graph, file_order: tuple[int, ...]) -> Graph:
    return replace(graph, ops=tuple(graph.ops[op] for op in file_order))


def test_the_best_of_all_file_orders_is_found() -> None:
    better = 0
    for seed in range(150):
        rng = random.Random(seed)
        graph = replace(all_read(random_graph(rng, rng.randint(1, 7))), dependencies=())
        planned = PlannerGraph.of(graph)
        found = best_default_order(planned, [order(planned.storage) for order in ORDERS.values()])
        executed = {
            walk_backwards(planned.storage.preds, planned.storage.succs, order) for order in topological_orders(graph)
        }
        least = min(simulate_reuse(planned, order).peak for order in executed)
        assert (found.peak, found.complete) == (least, True), seed
        assert simulate_reuse(planned, found.executed).peak == found.peak
        again = default_order(stored(graph, found.file_order))
        assert tuple(found.file_order[op] for op in again) == found.executed, seed
        better += least < simulate_reuse(planned, default_order(graph)).peak
    assert better > 20


def test_walks_are_what_the_rule_does_with_their_file_order() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        planned = PlannerGraph.of(random_graph(rng, rng.randint(1, 40)))
        search = default_rule._DefaultOrderSearch(planned, True, 0, 10_000, seed, lambda: False)
        search.needs = default_rule._needs(search.preds, search.count)
        for _ in range(5):
            executed, decisions = search.walk([rng.sample(list(befores), len(befores)) for befores in search.preds])
            file_order = default_rule._file_order(planned.storage, decisions)
            assert list(walk_backwards(planned.storage.preds, planned.storage.succs, file_order)) == executed, seed


def branches(count: int) -> Graph:
    """Return branches of a large and a small tensor each, joined, stored so that the rule runs all large ones first."""
    large, small = [f"l{i}" for i in range(count)], [f"s{i}" for i in range(count)]
    shapes = {"x": (1,), **dict.fromkeys(large, (100,)), **dict.fromkeys(small, (1,)), "m": (1,), "y": (1,)}
    # "m" reads every large tensor, and is the leaf that the rule explores first.
    ops = [(name, ["x"]) for name in large] + [(s, [b]) for s, b in zip(small, large, strict=True)]
    return shaped(shapes, [*ops, ("y", small), ("m", large)], ["y", "m"])


def test_never_worse_than_the_file_and_no_effort_is_enough_for_it() -> None:
    planned = PlannerGraph.of(branches(6))
    given = simulate_reuse(planned, default_order(branches(6))).peak
    for effort in (0, 100, 100_000):
        found = best_default_order(planned, [], effort=effort)
        assert found.peak <= given
    assert best_default_order(planned, [], effort=100_000, stop=lambda: True).peak <= given


def test_no_ops() -> None:
    found = best_default_order(PlannerGraph.of(Graph("g", (), (), (), ())), [()])
    assert (found.file_order, found.executed, found.peak) == ((), (), 0)


def test_graphs_too_large_to_search_keep_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = branches(3)
    monkeypatch.setattr(default_rule, "LARGEST", 3)
    found = best_default_order(PlannerGraph.of(graph), [tuple(range(len(graph.ops)))])
    assert found.file_order == tuple(range(len(graph.ops)))
