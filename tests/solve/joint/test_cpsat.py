"""The joint program against every order, in-place choice and packing of small graphs."""

from __future__ import annotations

import random

import pytest

from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.solve.joint.cpsat import solve
from tests.random_graphs import random_graph
from tests.solve.joint.packing_brute_force import least_arena, least_height


def test_brute_force_packs_the_example_of_the_memory_model() -> None:
    blocks = [(10, 0, 4), (20, 3, 5), (5, 3, 3), (10, 4, 5)]
    assert least_height(blocks, 1000) == 40
    # Three blocks that live two by two fit into the sum of two only if one lies between or beside the others.
    assert least_height([(2, 0, 1), (3, 1, 2), (2, 2, 3), (3, 3, 4)], 1000) == 5


@pytest.mark.parametrize("seed", range(60))
def test_the_arena_is_the_least_of_all(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(2, 5), multi_output=seed % 3 == 0)
    storage = Storage.of(graph)
    peak = evaluate(storage, tuple(range(len(graph.ops)))).peak
    alignment = rng.choice([1, 1, 4])
    blocks = sum(map(bool, storage.sizes)) + sum(map(bool, storage.workspace)) + len(graph.variables)
    if blocks > 7:
        return
    expected = least_arena(graph, peak_limit=peak, alignment=alignment)
    found = solve(single_op_tasks(storage), alignment=alignment, peak_limit=peak, lower_bound=0, upper_bound=1 << 20)
    if any(len(buffers) > 1 for buffers in storage.buffers_of):
        assert found.status == "refused"
        return
    assert (found.status, found.arena, found.lower_bound) == ("optimal", expected, expected)
    below = solve(
        single_op_tasks(storage), alignment=alignment, peak_limit=peak, lower_bound=0, upper_bound=found.arena
    )
    assert (below.status, below.lower_bound, below.order) == ("infeasible", found.arena, None)


def test_an_input_may_be_overwritten_in_the_first_step() -> None:
    graph = Graph(
        "relu",
        (Tensor("x", 10), Tensor("a", 10), Tensor("y", 4)),
        (Op("relu", "Relu", (0,), (1,), in_place=((1, 0),)), Op("pool", "Pool", (1,), (2,))),
        (0,),
        (2,),
    )
    found = solve(single_op_tasks(Storage.of(graph)), alignment=1, peak_limit=14, lower_bound=0, upper_bound=100)
    assert (found.arena, found.merged, found.order) == (14, ((1, 0),), (0, 1))


def test_too_many_buffers_are_refused() -> None:
    storage = Storage.of(random_graph(random.Random(1), 6, views=False))
    found = solve(
        single_op_tasks(storage), alignment=1, peak_limit=1000, lower_bound=0, upper_bound=1000, max_buffers=2
    )
    assert (found.status, found.order) == ("refused", None)


def test_the_peak_keeps_to_its_limit_even_where_a_larger_one_packs_better() -> None:
    edges = [((0,), 1), ((0, 1), 2), ((0, 2), 4), ((0,), 3), ((3,), 5), ((4, 5), 9), ((2, 3), 6), ((5, 3), 7)]
    edges += [((6, 3), 8), ((7,), 10)]
    graph = Graph(
        "costly",
        tuple(Tensor(f"t{index}", size) for index, size in enumerate((52, 86, 57, 69, 48, 28, 21, 73, 35, 25, 81))),
        tuple(Op(f"op{output}", "Op", read, (output,)) for read, output in edges),
        (0,),
        (8, 9, 10),
    )
    storage = Storage.of(graph)
    for limit, arena in ((226, 229), (227, 227), (1000, 227)):
        found = solve(single_op_tasks(storage), alignment=1, peak_limit=limit, lower_bound=0, upper_bound=1000)
        assert (found.status, found.arena) == ("optimal", arena)
        assert found.order is not None
        assert evaluate(storage, found.order).peak <= limit
    nothing = solve(single_op_tasks(storage), alignment=1, peak_limit=225, lower_bound=0, upper_bound=1000)
    assert nothing.status == "infeasible"
