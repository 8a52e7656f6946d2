"""The checker of rewrites: what has effects is executed once, whole, in its order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memsched.check.rewrite import check_rewrite
from memsched.graph.effects import UNKNOWN, Effects
from memsched.graph.model import Graph, Op, Region, Tensor
from tests.failures import fails

DRAWS = Effects(random=True)


def graph_of(effects: Effects) -> Graph:
    """Return x -> a -> b -> y and a -> c -> y, where ``a`` has effects."""
    tensors = tuple(Tensor(name, 4, (4,), "int8") for name in ("x", "a", "b", "c", "y"))
    ops = (
        Op("a", "F", (0,), (1,), positions=(0,), effects=effects),
        Op("b", "F", (1,), (2,), positions=(0,)),
        Op("c", "F", (1,), (3,), positions=(0,)),
        Op("y", "Add", (2, 3), (4,), positions=(0, 1)),
    )
    return Graph("g", tensors, ops, (0,), (4,))


def repeated(graph: Graph, region: Region | None = None) -> Graph:
    """Return the graph with ``a`` executed again for ``c``."""
    tensors = (*graph.tensors, Tensor("a2", 4, (4,), "int8"))
    copy = replace(graph.ops[0], name="a#again1", outputs=(5,), origin="a", region=region)
    ops = (*graph.ops[:2], copy, replace(graph.ops[2], inputs=(5,)), graph.ops[3])
    return replace(graph, tensors=tensors, ops=ops)


@pytest.mark.parametrize(
    "effects", [DRAWS, Effects(stateful=True), Effects(captures=True), Effects(random=True, unknown=True)]
)
def test_an_op_with_effects_is_not_executed_again(effects: Effects) -> None:
    with fails("effects-repeated", "'a'"):
        check_rewrite(graph_of(effects), repeated(graph_of(effects)))
    with fails("effects-repeated", "'a'"):
        check_rewrite(graph_of(effects), repeated(graph_of(effects), Region(((0, 4),))))
    check_rewrite(graph_of(Effects()), repeated(graph_of(Effects())))
    check_rewrite(graph_of(UNKNOWN), repeated(graph_of(UNKNOWN)))  # the user vouched for it


def test_an_op_with_effects_does_not_vanish() -> None:
    graph = graph_of(DRAWS)
    ops = tuple(replace(op, inputs=tuple(0 if one == 1 else one for one in op.inputs)) for op in graph.ops[1:])
    left = replace(graph, ops=ops, tensors=(*graph.tensors[:1], Tensor("a", 4, (4,), "int8"), *graph.tensors[2:]))
    left = replace(left, inputs=(0,), variables=())
    with fails("effects-lost", "'a'"):
        check_rewrite(graph, left)


def test_no_loop_and_no_chain_computes_an_op_with_effects() -> None:
    graph = graph_of(DRAWS)
    helper = Op("a_whole", "com.microsoft.QuickGelu", (0,), (1,), positions=(0,), chain=("a",))
    with fails("chain-type", "'a_whole'"):
        check_rewrite(graph, replace(graph, ops=(helper, *graph.ops[1:])))


def test_an_op_does_not_lose_its_effects() -> None:
    graph = graph_of(DRAWS)
    with fails("op-differs", "'a'"):
        check_rewrite(graph, replace(graph, ops=(replace(graph.ops[0], effects=Effects()), *graph.ops[1:])))


def test_an_order_that_no_tensor_states_is_kept() -> None:
    graph = graph_of(DRAWS)
    ordered = replace(graph, dependencies=((1, 2),))
    check_rewrite(ordered, ordered)
    with fails("dependency", "'b'", "'c'"):
        check_rewrite(ordered, graph)
