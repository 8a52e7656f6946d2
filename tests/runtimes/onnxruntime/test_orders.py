"""ONNX Runtime's two orders on small graphs: by hand, and against the recursion that the rule tells.

The tests of `memsched.runtimes` compare both with the runtime itself.
"""

from __future__ import annotations

import random

from memsched.graph import dag
from memsched.graph.model import Graph, Op
from memsched.runtimes.onnxruntime.orders import default_order, priority_order, walk_backwards
from tests.graph.examples import graph_of
from tests.random_graphs import random_graph, random_order


def graph_with(types: list[str], reads: list[tuple[int, ...]]) -> Graph:
    """Return a graph in which op i makes tensor i and reads the tensors of the ops ``reads[i]``."""
    ops = [Op(f"op{i}", kind, read, (i,)) for i, (kind, read) in enumerate(zip(types, reads, strict=True))]
    return graph_of({f"t{i}": 1 for i in range(len(ops))}, ops, [], [])


def recursive(preds: list[tuple[int, ...]], file_order: tuple[int, ...]) -> tuple[int, ...]:
    """Depth first from the last leaf of the file, predecessors from the last of the file to the first."""
    place = {op: position for position, op in enumerate(file_order)}
    read = {before for befores in preds for before in befores}
    order: list[int] = []

    def visit(op: int) -> None:
        if op not in order:
            for before in sorted(preds[op], key=lambda one: -place[one]):
                visit(before)
            order.append(op)

    for leaf in reversed([op for op in file_order if op not in read]):
        visit(leaf)
    return tuple(order)


def test_the_default_order_begins_with_the_last_branch_of_the_last_leaf() -> None:
    graph = graph_with(["Op"] * 6, [(), (0,), (0,), (1, 2), (), (4,)])
    assert default_order(graph) == (4, 5, 0, 2, 1, 3)
    preds = dag.predecessors(graph)
    # The same graph in a file with the branches the other way round.
    assert walk_backwards(preds, dag.successors_of(preds), (4, 5, 0, 2, 1, 3)) == (0, 1, 2, 3, 4, 5)


def test_the_default_order_is_the_recursion() -> None:
    rng = random.Random(21)
    for _ in range(300):
        graph = random_graph(rng, rng.randint(0, 12))
        preds = dag.predecessors(graph)
        order = random_order(rng, graph)
        assert default_order(graph) == recursive(preds, tuple(range(len(preds))))
        assert walk_backwards(preds, dag.successors_of(preds), order) == recursive(preds, order)


def test_shapes_run_as_soon_as_they_can() -> None:
    graph = graph_with(["Op", "Op", "Shape", "Size", "Op", "Shape"], [(), (0,), (1,), (0,), (), (2, 4)])
    assert priority_order(graph) == (0, 3, 1, 2, 4, 5)
    assert priority_order(graph, (4, 0, 1, 3, 2, 5)) == (4, 0, 3, 1, 2, 5)
    assert priority_order(graph, range(6)) == priority_order(graph)


def test_without_shapes_the_file_s_order_is_kept() -> None:
    rng = random.Random(22)
    for _ in range(200):
        graph = random_graph(rng, rng.randint(0, 12))
        order = random_order(rng, graph)
        assert priority_order(graph) == tuple(range(len(graph.ops)))
        assert priority_order(graph, order) == order


def test_of_several_shapes_the_first_of_the_file_runs() -> None:
    rng = random.Random(23)
    hoisted = 0
    for _ in range(200):
        count = rng.randint(1, 9)
        kinds = [rng.choice(["Shape", "Size", "Op"]) for _ in range(count)]
        reads = [tuple(sorted(rng.sample(range(i), rng.randint(0, min(i, 2))))) for i in range(count)]
        graph = graph_with(kinds, reads)
        order = random_order(rng, graph)
        expected: list[int] = []
        while len(expected) < count:
            ready = [op for op in order if op not in expected and set(reads[op]) <= set(expected)]
            expected.append(next((op for op in ready if kinds[op] != "Op"), ready[0]))
        assert priority_order(graph, order) == tuple(expected)
        hoisted += tuple(expected) != order
    assert hoisted > 50
