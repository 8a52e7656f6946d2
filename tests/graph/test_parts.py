"""Parts of random graphs: valid graphs, with the interface that the whole graph implies."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from memsched.graph import dag
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.parts import part_of
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
