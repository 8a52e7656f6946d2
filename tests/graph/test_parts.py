"""Parts of random graphs: valid graphs, with the interface that the whole graph implies."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from memsched.graph import dag
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.parts import part_of, readers_of
from tests.graph.examples import graph_of
from tests.random_graphs import random_graph


@given(seed=st.integers(0, 2**31))
def test_parts_of_random_graphs(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 12))
    cut = sorted(rng.sample(range(len(graph.ops) + 1), 2))
    ops = range(cut[0], cut[1])
    part = part_of(graph, ops)
    dag.validate(part)
    assert [op.name for op in part.ops] == [graph.ops[op].name for op in ops]
    names = {part.tensors[tensor].name for tensor in part.inputs}
    made_before = {graph.tensors[tensor].name for op in graph.ops[: cut[0]] for tensor in op.outputs}
    given_to_all = {graph.tensors[tensor].name for tensor in graph.inputs}
    assert names <= made_before | given_to_all
    read_after = {graph.tensors[tensor].name for op in graph.ops[cut[1] :] for tensor in op.inputs}
    results = {graph.tensors[tensor].name for tensor in graph.outputs}
    for op in part.ops:
        for tensor in op.outputs:
            if tensor not in part.variables:
                assert (tensor in part.outputs) == (part.tensors[tensor].name in read_after | results)


def test_the_whole_graph_costs_what_it_costs() -> None:
    for seed in range(20):
        graph = random_graph(random.Random(seed), 8)
        whole = part_of(graph, range(8))
        read = {tensor for op in graph.ops for tensor in op.inputs}
        if set(graph.inputs) <= read and not set(graph.inputs) & set(graph.outputs):
            assert evaluate(Storage.of(whole), range(8)).peak == evaluate(Storage.of(graph), range(8)).peak


def stateful() -> Graph:
    """f writes state s and makes a; g reads s and a; state t is read by h alone, state u by nobody."""
    ops = [
        Op("f", "Op", (0,), (1, 4), in_place=((4, 0),)),
        Op("g", "Op", (1, 4, 4), (5,), views=((5, 4),)),
        Op("h", "Op", (5, 2), (6,)),
    ]
    sizes = {"x": 1, "s": 2, "t": 3, "u": 4, "a": 5, "b": 6, "y": 7}
    return graph_of(sizes, ops, ["x"], ["y"], ["s", "t", "u"], [(0, 1), (1, 2)])


def test_states_that_a_part_writes_or_reads_stay_states() -> None:
    graph = stateful()
    assert readers_of(graph) == [[0], [1], [2], [], [1], [2], []]
    first, last = part_of(graph, [0]), part_of(graph, [2])
    assert first == Graph(
        "example",
        (Tensor("x", 1), Tensor("s", 2), Tensor("a", 5)),
        (Op("f", "Op", (0,), (1, 2), in_place=((2, 0),)),),
        (0,),
        (2,),
        (1,),
    )
    assert last == Graph(
        "example",
        (Tensor("t", 3), Tensor("b", 6), Tensor("y", 7)),
        (Op("h", "Op", (1, 0), (2,)),),
        (1,),
        (2,),
        (0,),
    )


def test_a_part_keeps_views_and_what_must_come_before_what() -> None:
    part = part_of(stateful(), [1, 2])
    assert [tensor.name for tensor in part.tensors] == ["s", "t", "a", "b", "y"]
    assert part.ops == (
        Op("g", "Op", (0, 2, 2), (3,), views=((3, 2),)),
        Op("h", "Op", (3, 1), (4,)),
    )
    assert (part.inputs, part.outputs, part.variables, part.dependencies) == ((2,), (4,), (0, 1), ((0, 1),))
