"""Structure: what is a valid graph, and reachability against naive searches."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from memsched.base.errors import GraphError
from memsched.graph import dag
from memsched.graph.model import Graph, Op
from tests.failures import fails
from tests.graph.examples import graph_of
from tests.random_graphs import random_graph, random_layered_graph

OPS = [Op("f", "Op", (0,), (1,)), Op("g", "Op", (1,), (2,)), Op("h", "Op", (1, 2), (3,))]


def example() -> Graph:
    return graph_of({"x": 1, "a": 2, "b": 3, "y": 4}, OPS, ["x"], ["y"])


def with_op(graph: Graph, index: int, **changes: object) -> Graph:
    ops = list(graph.ops)
    ops[index] = replace(ops[index], **changes)  # type: ignore[arg-type]
    return replace(graph, ops=tuple(ops))


def test_producers_predecessors_and_successors() -> None:
    graph = replace(example(), dependencies=((0, 2),))
    dag.validate(graph)
    assert dag.producers(graph) == [-1, 0, 1, 2]
    assert dag.predecessors(graph) == [(), (0,), (0, 1)]
    assert dag.successors_of(dag.predecessors(graph)) == [(1, 2), (2,), ()]
    assert dag.predecessors(example()) == [(), (0,), (0, 1)]


@pytest.mark.parametrize(
    ("corrupt", "expected"),
    [
        (lambda g: replace(g, tensors=(replace(g.tensors[0], size=-1), *g.tensors[1:])), ("negative-size", "'x'")),
        (lambda g: replace(g, tensors=(replace(g.tensors[0], name="a"), *g.tensors[1:])), ("name-twice", "'a'")),
        (lambda g: replace(g, inputs=(0, 9)), ("tensor-index", "tensor 9")),
        (lambda g: replace(g, outputs=(-1,)), ("tensor-index", "tensor -1")),
        (lambda g: replace(g, variables=(4,)), ("tensor-index", "tensor 4")),
        (lambda g: with_op(g, 1, name="f"), ("name-twice", "'f'")),
        (lambda g: with_op(g, 1, workspace=-5), ("negative-size", "-5")),
        (lambda g: with_op(g, 1, inputs=(7,)), ("tensor-index", "'g'", "tensor 7")),
        (lambda g: with_op(g, 1, inputs=(4,)), ("tensor-index", "'g'", "tensor 4", "only 4")),
        (lambda g: with_op(g, 1, outputs=(2, 3)), ("two-producers", "'y'")),
        (lambda g: with_op(g, 1, outputs=(2, 0)), ("two-producers", "'x'")),
        (lambda g: with_op(g, 1, outputs=(2, 2)), ("two-producers", "'b'")),
        (lambda g: with_op(g, 1, views=((2, 0),)), ("foreign-memory", "'g'")),
        (lambda g: with_op(g, 1, in_place=((1, 1),)), ("foreign-memory", "'g'")),
        (lambda g: with_op(g, 0, inputs=(2,)), ("read-too-early", "'b'")),
        (lambda g: with_op(g, 0, inputs=(1,)), ("read-too-early", "'a'")),
        (lambda g: replace(g, inputs=()), ("no-producer", "'x'")),
        (lambda g: replace(g, ops=g.ops[:2]), ("no-producer", "'y'")),
        (lambda g: replace(g, dependencies=((2, 0),)), ("dependency-backwards", "op 2", "op 0")),
        (lambda g: replace(g, dependencies=((1, 1),)), ("dependency-backwards",)),
        (lambda g: replace(g, dependencies=((0, 3),)), ("dependency-backwards",)),
        (lambda g: replace(g, dependencies=((-1, 2),)), ("dependency-backwards",)),
        (lambda g: replace(g, inputs=(0, 0)), ("input-twice", "'x'")),
        (lambda g: replace(g, inputs=(0, 3, 3)), ("input-twice", "'y'")),
    ],
)
def test_an_invalid_graph_is_named_in_one_line(corrupt: Callable[[Graph], Graph], expected: tuple[str, ...]) -> None:
    dag.validate(example())
    with fails(*expected, kind=GraphError) as caught:
        dag.validate(corrupt(example()))
    assert "\n" not in str(caught.value)


def test_graph_errors_are_model_errors_with_exit_code_1() -> None:
    assert GraphError.exit_code == 1


def reachable(nexts: list[tuple[int, ...]], start: int) -> set[int]:
    found: set[int] = set()
    stack = [start]
    while stack:
        for node in nexts[stack.pop()]:
            if node not in found:
                found.add(node)
                stack.append(node)
    return found


def test_reachability_and_separating_nodes_equal_a_naive_search() -> None:
    rng = random.Random(7)
    separated = 0
    for _ in range(800):
        graph = random_graph(rng, rng.randint(0, 15))
        preds = dag.predecessors(graph)
        succs = dag.successors_of(preds)
        ancestors = [reachable(preds, node) for node in range(len(preds))]
        descendants = [reachable(succs, node) for node in range(len(preds))]
        assert dag.ancestor_bitsets(preds) == [sum(1 << other for other in found) for found in ancestors]
        assert dag.descendant_bitsets(succs) == [sum(1 << other for other in found) for found in descendants]
        everyone = [len(ancestors[node]) + len(descendants[node]) + 1 == len(preds) for node in range(len(preds))]
        expected = [node for node in range(len(preds)) if everyone[node]]
        assert dag.separating_nodes(preds, succs) == expected
        separated += len(expected)
    assert separated > 200


def test_every_node_of_a_chain_separates() -> None:
    count = 100_000
    preds = [(node - 1,) if node else () for node in range(count)]
    assert dag.separating_nodes(preds, dag.successors_of(preds)) == list(range(count))


def test_100000_ops_are_validated() -> None:
    graph = random_layered_graph(random.Random(8), 100_000)
    dag.validate(graph)
    preds = dag.predecessors(graph)
    dag.separating_nodes(preds, dag.successors_of(preds))


def test_topological_order_takes_the_least_rank_that_may_come_next() -> None:
    preds = [(), (), (0,), (1,), (2, 3)]
    assert dag.topological_order(preds, range(5)) == [0, 1, 2, 3, 4]
    assert dag.topological_order(preds, [5, 1, 4, 2, 3]) == [1, 3, 0, 2, 4]


def test_topological_order_leaves_out_what_is_on_or_after_a_cycle() -> None:
    assert dag.topological_order([(), (2,), (1,), (2,)], range(4)) == [0]
